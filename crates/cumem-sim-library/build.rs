//! Gives the library the name that the dynamic loader knows the CUDA driver by.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
        // What the library says of itself is its own, whatever else the process exports; and a
        // copy with hidden symbols still finds itself.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
}
