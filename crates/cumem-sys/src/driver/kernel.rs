//! *Module Management* and *Execution Control*.

use core::ffi::{CStr, c_void};
use core::ptr;

use super::Driver;
use crate::bindings::{CUfunction, CUmodule, CUstream};
use crate::error::CuError;

impl Driver {
    /// Loads PTX text (ended by a zero byte), a cubin or a fatbin into the current context.
    /// (*Module Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_PTX` and others.
    ///
    /// # Safety
    /// `image` points to a whole one of these.
    pub unsafe fn module_load_data(&self, image: *const c_void) -> Result<CUmodule, CuError> {
        let mut module = ptr::null_mut();
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe { self.table().cuModuleLoadData(&mut module, image) }?;
        Ok(module)
    }

    /// Unloads a module. (*Module Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The module is live, and no work under way runs its code.
    pub unsafe fn module_unload(&self, module: CUmodule) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuModuleUnload(module) }
    }

    /// A kernel of a module. (*Module Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND` if it has none of that name.
    ///
    /// # Safety
    /// The module is live.
    pub unsafe fn module_get_function(
        &self,
        module: CUmodule,
        name: &CStr,
    ) -> Result<CUfunction, CuError> {
        let mut function = ptr::null_mut();
        // SAFETY: the caller's promise; the call reads the name and writes one value to a local.
        unsafe {
            self.table()
                .cuModuleGetFunction(&mut function, module, name.as_ptr())
        }?;
        Ok(function)
    }

    /// Runs a kernel over a grid of blocks of threads, in stream order. (*Execution Control*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The function's module is live; the stream is live, or null; `arguments` has one pointer for each
    /// parameter of the kernel, to a value of the type that the kernel declares there; and what the
    /// kernel does with them is sound.
    pub unsafe fn launch_kernel(
        &self,
        function: CUfunction,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        stream: CUstream,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.table().cuLaunchKernel(
                function,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }
}
