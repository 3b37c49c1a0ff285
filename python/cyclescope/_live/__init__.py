"""Memory that is in use: what grows, what was there when memory ran out, and relief."""
