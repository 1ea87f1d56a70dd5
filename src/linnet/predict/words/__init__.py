"""What predictions show in a terminal or a notebook, one file for each topic."""
