//! Raw bindings to the CUDA driver API and a loader that finds the driver at run time.
