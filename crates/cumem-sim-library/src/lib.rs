//! The simulated CUDA driver as a shared library.
//!
//! Built as `libcumem_sim_library.so`; under the name `libcuda.so.1` it takes the place of the real
//! driver's library for programs that load it by path, or find it on the library path. The
//! environment says what it is:
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `CUMEM_SIM_DEVICES` | how many devices | 1 |
//! | `CUMEM_SIM_MEMORY` | bytes of each device | 8 GiB |
//! | `CUMEM_SIM_DRIVER_VERSION` | driver API version, as drivers count | 13000 |
//! | `CUMEM_SIM_CONCURRENT_MANAGED_ACCESS` | 0 or 1 | 1 |
//! | `CUMEM_SIM_BOOKS` | 1: at exit, print what is live and what was freed wrongly to stderr | 0 |

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::str::FromStr;

use cumem_sim::{LIBRARY_SLOT, Sim, SimBuilder, entries, install_library, library_books};
use cumem_sys::bindings::*;

macro_rules! export {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            #[allow(clippy::missing_safety_doc, reason = "NVIDIA's manual documents it")]
            #[allow(missing_docs, reason = "NVIDIA's manual documents it")]
            #[allow(non_snake_case, reason = "the exported name is the C name")]
            // SAFETY: the symbol has the C name and signature of NVIDIA's header, and nothing else
            // in this library exports it.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
                install_library(from_environment);
                // SAFETY: the caller keeps what NVIDIA's manual asks.
                unsafe { entries::$name::<LIBRARY_SLOT>($($argument),*) }
            }
        )*
    };
}

cumem_sim::for_each_entry!(export);

/// What the environment asks for. A value that can't be read ends the process: a test that went on
/// with another driver than it asked for would be worthless.
fn from_environment() -> SimBuilder {
    let mut builder = Sim::builder();
    if let Some(devices) = variable("CUMEM_SIM_DEVICES") {
        builder = builder.devices(devices);
    }
    if let Some(bytes) = variable("CUMEM_SIM_MEMORY") {
        builder = builder.memory_per_device(bytes);
    }
    if let Some(version) = variable("CUMEM_SIM_DRIVER_VERSION") {
        builder = builder.driver_version(version);
    }
    if let Some(concurrent) = variable::<u8>("CUMEM_SIM_CONCURRENT_MANAGED_ACCESS") {
        builder = builder.concurrent_managed_access(concurrent != 0);
    }
    if variable::<u8>("CUMEM_SIM_BOOKS").is_some_and(|print| print != 0) {
        // SAFETY: the handler is a plain function of this library, which is never unloaded.
        unsafe { libc::atexit(print_books) };
    }
    builder
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(_) => {
            eprintln!("cumem-sim: {name}={text:?} can't be read");
            std::process::exit(2);
        }
    }
}

extern "C" fn print_books() {
    let books = library_books();
    eprintln!(
        "cumem-sim: {} live blocks ({} bytes), {} double frees, {} frees through the wrong entry \
         point, {} frees of unknown pointers",
        books.live.len(),
        books.live_bytes(),
        books.double_frees,
        books.wrong_entry_frees,
        books.unknown_frees,
    );
    for block in &books.live {
        eprintln!(
            "cumem-sim:   {:#x}: {} bytes of {:?} memory on device {}",
            block.pointer, block.size, block.memory, block.device
        );
    }
}
