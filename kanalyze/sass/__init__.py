"""SASS, the machine code of NVIDIA GPUs: reader, table of instructions, control flow."""
