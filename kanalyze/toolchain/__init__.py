"""NVIDIA's tools: ptxas, nvdisasm, cuobjdump."""
