"""Records of measured launches: what they hold, how they are written, read and validated."""
