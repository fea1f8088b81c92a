//! Modules and kernels. There is no device that could run one, and the answers say so: what looks
//! like a program is answered `CUDA_ERROR_NOT_SUPPORTED`, and what doesn't is refused as the real
//! driver refuses it.

use core::ffi::{CStr, c_char, c_uint, c_void};

use cumem_sys::{CUfunction, CUmodule, CUresult, CUstream};

use crate::instance::{Answer, Instance};

/// How a cubin, a fat binary and its wrapper begin, and where PTX says its version.
const BEGINNINGS: [&[u8]; 3] = [
    b"\x7fELF",
    &[0x50, 0xed, 0x55, 0xba],
    &[0xb1, 0x43, 0x62, 0x46],
];
const PTX: &[u8] = b".version";

/// Whether an image looks like a program.
///
/// # Safety
/// The image is a C string, or has one of the beginnings.
unsafe fn is_program(image: *const u8) -> bool {
    let begins = |beginning: &[u8]| {
        (0..beginning.len()).all(|at| {
            // SAFETY: all bytes before this one are those of the beginning, none of them zero, so
            // that a C string doesn't end before it.
            (unsafe { image.add(at).read() }) == beginning[at]
        })
    };
    if BEGINNINGS.iter().any(|beginning| begins(beginning)) {
        return true;
    }
    // SAFETY: it isn't one of the binary forms, so it is a C string.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_bytes();
    text.windows(PTX.len()).any(|window| window == PTX)
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuModuleLoadData(
        &self,
        module: *mut CUmodule,
        image: *const c_void,
    ) -> Answer {
        let state = self.state();
        self.current(&state)?;
        if module.is_null() || image.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gave an image: one of the binary forms, or text.
        if unsafe { is_program(image.cast()) } {
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        }
    }

    /// No module was ever loaded, so none can be unloaded.
    pub(crate) unsafe fn cuModuleUnload(&self, _module: CUmodule) -> Answer {
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) unsafe fn cuModuleGetFunction(
        &self,
        _function: *mut CUfunction,
        _module: CUmodule,
        _name: *const c_char,
    ) -> Answer {
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    #[expect(clippy::too_many_arguments, reason = "the entry point's form")]
    pub(crate) unsafe fn cuLaunchKernel(
        &self,
        _function: CUfunction,
        _grid_x: c_uint,
        _grid_y: c_uint,
        _grid_z: c_uint,
        _block_x: c_uint,
        _block_y: c_uint,
        _block_z: c_uint,
        _shared_bytes: c_uint,
        _stream: CUstream,
        _arguments: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) -> Answer {
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}
