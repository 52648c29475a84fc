#!/usr/bin/env bash
# Measures the patterns on a GPU with Nsight Compute; writes OUT/patterns.csv and OUT/patterns.txt.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); out=${1:-.}
python3 "$here/make_patterns.py" > "$out/patterns.txt"
nvcc -arch=native -std=c++17 -o /tmp/patterns "$here/patterns.cu"
metrics=l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
for op in ld st; do
    metrics+=,l1tex__data_pipe_lsu_wavefronts_mem_shared_op_$op.sum
    metrics+=,l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_$op.sum
done
for op in ld st red atom; do
    metrics+=,l1tex__t_requests_pipe_lsu_mem_global_op_$op.sum
    metrics+=,l1tex__t_sectors_pipe_lsu_mem_global_op_$op.sum
done
ncu --replay-mode kernel --cache-control none --clock-control none --csv --page raw \
    --print-units base --metrics "$metrics" /tmp/patterns "$out/patterns.txt" > "$out/patterns.csv"
tail -2 "$out/patterns.csv"
