"""The GPU door: engine children, the workers beside them and the client between both."""
