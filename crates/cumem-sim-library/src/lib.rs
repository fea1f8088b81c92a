//! The simulated CUDA driver as a shared library: every entry point exported under its C name.
//!
//! A package of its own, so that a program that uses `cumem-sim` in process exports none of them.

use core::ffi::{c_char, c_int, c_uint, c_void};

use cumem_sim::{entry, entry_points, library};
use cumem_sys::*;

macro_rules! export {
    ($(
        $kind:ident $name:ident($($argument:ident: $type:ty),* $(,)?) since $since:literal;
    )*) => {
        $(
            /// # Safety
            /// As the CUDA Driver API manual says of the function of that name.
            #[allow(non_snake_case, reason = "its C name")]
            #[allow(clippy::too_many_arguments, reason = "the C function has as many")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
                library::prepare(exported);
                // SAFETY: passed on; the slot is taken for good.
                unsafe { entry::$name::<{ library::SLOT }>($($argument),*) }
            }
        )*

        /// The function that is exported under a name.
        fn exported(name: &str) -> *mut c_void {
            match name {
                $(stringify!($name) => $name as *mut c_void,)*
                _ => core::ptr::null_mut(),
            }
        }
    };
}

entry_points!(export);
