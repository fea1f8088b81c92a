//! A software CUDA driver: run and fault-test CUDA memory code on a machine without a GPU.
