"""The one-machine stack: embedded servers and anex's own processes under one small supervisor."""
