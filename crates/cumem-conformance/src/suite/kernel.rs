//! Modules.

use cumem_sys::CUresult;

use super::code;
use crate::behaviour::{behaviours, call, refused};

behaviours! {
    area "kernel";

    /// Bytes that are no program are refused.
    shared fn garbage_is_no_module(g) {
        let garbage = c"this is not a program for any GPU";
        let result = call!(g.module_load_data(garbage.as_ptr().cast()));
        refused(result, CUresult::CUDA_ERROR_INVALID_IMAGE)?;
    }

    /// No program at all is refused.
    shared fn null_is_no_module(g) {
        refused(call!(g.module_load_data(core::ptr::null())), code::INVALID_VALUE)?;
    }

    /// Loading a program needs a context.
    shared fn needs_a_context(g) {
        g.elsewhere(|g| {
            let garbage = c"this is not a program for any GPU";
            let result = call!(g.module_load_data(garbage.as_ptr().cast()));
            refused(result, code::INVALID_CONTEXT)
        })?;
    }
}
