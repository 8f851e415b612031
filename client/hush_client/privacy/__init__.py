"""Whether a device answers, what it draws, and how both are stored: the privacy argument, one step a file."""
