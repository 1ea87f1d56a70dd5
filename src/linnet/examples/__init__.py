"""Files for `linnet predict network`."""
