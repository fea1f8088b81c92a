//! Modules and kernels. There is no device that could run one, and the answers say so.

use core::ffi::{c_char, c_uint, c_void};

use cumem_sys::{CUfunction, CUmodule, CUresult, CUstream};

use crate::instance::{Answer, Instance};

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    /// No program can be loaded: `CUDA_ERROR_NOT_SUPPORTED`.
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
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
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
