"""L1, L2 and HBM over one launch: what each block asks for, and what of it reaches which level."""
