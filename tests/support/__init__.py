"""What the tests share: objects that leak, host programs, stand-ins."""
