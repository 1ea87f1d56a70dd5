"""What predictions show in a terminal."""
