"""One kernel beside another, or beside a sequence of them, and over sizes of the problem."""
