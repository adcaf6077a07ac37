"""Engine children: every one serves the same HTTP surface on a Unix socket."""
