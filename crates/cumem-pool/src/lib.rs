//! A bounded caching allocator above any kind of CUDA memory.

mod class;
mod pages;
mod sync;
