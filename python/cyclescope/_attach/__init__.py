"""Ask a process that already runs, from outside."""
