//! What the shared library is made of; not for programs that use this crate.

use core::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;

use crate::sim::Sim;

/// The slot of the library's one simulated driver: the first that is taken in its process image.
pub const SLOT: usize = 0;

static SIM: OnceLock<Sim> = OnceLock::new();

/// Makes the library's simulated driver when it is first needed.
///
/// A mistake in the environment ends the process: a test that runs with another driver than it
/// asked for would prove nothing.
///
/// `exported` is the library's own function of a name, which `cuGetProcAddress_v2` then answers.
#[inline]
pub fn prepare(exported: fn(&str) -> *mut c_void) {
    SIM.get_or_init(|| {
        let builder = match Sim::builder_from_environment() {
            Ok(builder) => builder,
            Err(message) => {
                let _ = writeln!(std::io::stderr(), "cumem-sim: {message}");
                std::process::exit(2);
            }
        };
        if std::env::var_os("CUMEM_SIM_BOOKS").is_some() {
            // SAFETY: the handler is a function of this library, which stays loaded, and it
            // doesn't unwind.
            let _: c_int = unsafe { libc::atexit(write_books) };
        }
        builder.exported_as(exported).build()
    });
}

/// Writes the books where the environment says.
extern "C" fn write_books() {
    let (Some(sim), Some(target)) = (SIM.get(), std::env::var_os("CUMEM_SIM_BOOKS")) else {
        return;
    };
    if sim.is_forked() {
        return;
    }
    let books = sim.books().to_string();
    // Whoever asked for the books sees that they are missing; at exit there is nobody to tell.
    let _ = if target == "stderr" || target == "1" {
        std::io::stderr().write_all(books.as_bytes())
    } else {
        std::fs::write(target, books)
    };
}
