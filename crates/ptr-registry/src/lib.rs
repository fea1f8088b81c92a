//! A bounded, lock-free registry of live pointers: no_std, no heap, usable as a static.
