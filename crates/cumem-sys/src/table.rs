//! The one table of entry points: exact exported name, since when, and signature.
//!
//! Unversioned names are the oldest form of a function. Where a later form exists (`_v2`), the
//! unversioned export still is the old one, with 32-bit device pointers in the worst case; so each
//! line here names the one form that is meant, and the compiler checks its signature against the
//! generated declaration.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::bindings::*;
use crate::error::CuError;

/// An entry point that this crate binds.
#[derive(Debug)]
pub struct Symbol {
    name: &'static CStr,
    since: u32,
    required: bool,
}

impl Symbol {
    /// The exact exported name, such as `cuMemFree_v2`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        // Every name below is written in ASCII; a name that isn't UTF-8 can't be made.
        self.name.to_str().unwrap_or_default()
    }

    /// The CUDA version whose driver first had it, as the driver counts: 12020 is 12.2.
    #[must_use]
    pub fn since(&self) -> u32 {
        self.since
    }

    /// Whether a driver without it is refused.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }
}

/// Finds an exported symbol by its exact name; null if there is none.
pub(crate) type Resolve<'a> = &'a dyn Fn(&CStr) -> *mut c_void;

macro_rules! is_required {
    (required) => {
        true
    };
    (optional) => {
        false
    };
}

macro_rules! table {
    ($(
        $need:ident $name:ident($($argument:ident: $type:ty),* $(,)?) since $since:literal;
    )*) => {
        /// The resolved entry points of one driver.
        #[allow(non_snake_case, reason = "each field has its C name")]
        pub(crate) struct Table {
            $($name: Option<unsafe extern "C" fn($($type),*) -> CUresult>,)*
        }

        /// What each field of [`Table`] is, under the same name.
        #[allow(non_upper_case_globals, reason = "each constant has its C name")]
        mod symbols {
            $(pub(super) static $name: super::Symbol = super::Symbol {
                name: match core::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a name holds a zero byte"),
                },
                since: $since,
                required: is_required!($need),
            };)*
        }

        /// Every entry point that this crate binds, in the order of the table.
        pub static SYMBOLS: &[&Symbol] = &[$(&symbols::$name),*];

        // Each signature above is the one that the header declares under that exact name.
        $(const _: unsafe extern "C" fn($($type),*) -> CUresult = crate::bindings::$name;)*

        impl Table {
            /// Resolves every symbol; the first required one that is missing is the error.
            ///
            /// # Safety
            /// What `resolve` finds under a name is the driver's function of that name.
            pub(crate) unsafe fn resolve(resolve: Resolve<'_>) -> Result<Self, &'static Symbol> {
                Ok(Self {
                    $($name: {
                        let found = resolve(symbols::$name.name);
                        if found.is_null() {
                            if symbols::$name.required {
                                return Err(&symbols::$name);
                            }
                            None
                        } else {
                            // SAFETY: the caller promises that this is the function of that name,
                            // whose signature the generated declaration has and the constant
                            // above compares.
                            Some(unsafe {
                                core::mem::transmute::<
                                    *mut c_void,
                                    unsafe extern "C" fn($($type),*) -> CUresult,
                                >(found)
                            })
                        }
                    },)*
                })
            }

            /// Every entry point from the linker.
            #[cfg(feature = "linked")]
            pub(crate) fn linked() -> Self {
                Self { $($name: Some(crate::bindings::$name),)* }
            }

            /// The address that a symbol was resolved to, if it was.
            pub(crate) fn address_of(&self, symbol: &Symbol) -> Option<*const c_void> {
                $(if core::ptr::eq(symbol, &symbols::$name) {
                    return self.$name.map(|function| function as *const c_void);
                })*
                None
            }

            $(
                #[allow(non_snake_case, reason = "each method has its C name")]
                #[allow(clippy::too_many_arguments, reason = "the C functions have as many")]
                #[inline]
                pub(crate) unsafe fn $name(&self, $($argument: $type),*) -> Result<(), CuError> {
                    let Some(function) = self.$name else {
                        return Err(CuError::missing(&symbols::$name));
                    };
                    // SAFETY: the pointer is the driver's function of that name; the caller keeps
                    // what the function asks of its arguments.
                    let code = unsafe { function($($argument),*) };
                    if code == CUresult::CUDA_SUCCESS {
                        Ok(())
                    } else {
                        Err(CuError::answered(&symbols::$name, code))
                    }
                }
            )*
        }
    };
}

table! {
    // Initialisation, versions, errors.
    required cuInit(flags: c_uint) since 2000;
    required cuDriverGetVersion(version: *mut c_int) since 2020;
    required cuGetErrorName(code: CUresult, name: *mut *const c_char) since 6000;
    required cuGetErrorString(code: CUresult, text: *mut *const c_char) since 6000;
    optional cuGetProcAddress_v2(name: *const c_char, found: *mut *mut c_void, version: c_int, flags: cuuint64_t, status: *mut CUdriverProcAddressQueryResult) since 12000;

    // Devices.
    required cuDeviceGet(device: *mut CUdevice, ordinal: c_int) since 2000;
    required cuDeviceGetCount(count: *mut c_int) since 2000;
    required cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) since 2000;
    required cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) since 2000;
    required cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) since 3020;
    optional cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) since 11040;
    optional cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) since 4000;

    // Contexts.
    required cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) since 7000;
    required cuDevicePrimaryCtxRelease_v2(device: CUdevice) since 11000;
    optional cuDevicePrimaryCtxReset_v2(device: CUdevice) since 11000;
    optional cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) since 11000;
    optional cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) since 7000;
    optional cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) since 3020;
    optional cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut CUctxCreateParams, flags: c_uint, device: CUdevice) since 12050;
    optional cuCtxDestroy_v2(context: CUcontext) since 4000;
    required cuCtxPushCurrent_v2(context: CUcontext) since 4000;
    required cuCtxPopCurrent_v2(context: *mut CUcontext) since 4000;
    required cuCtxGetCurrent(context: *mut CUcontext) since 4000;
    required cuCtxSetCurrent(context: CUcontext) since 4000;
    optional cuCtxGetDevice(device: *mut CUdevice) since 2000;
    required cuCtxSynchronize() since 2000;
    optional cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) since 3020;
    optional cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) since 4000;
    optional cuCtxDisablePeerAccess(peer: CUcontext) since 4000;

    // Memory.
    required cuMemGetInfo_v2(free: *mut usize, total: *mut usize) since 3020;
    required cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) since 3020;
    required cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint) since 6000;
    required cuMemFree_v2(pointer: CUdeviceptr) since 3020;
    required cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) since 2020;
    required cuMemFreeHost(pointer: *mut c_void) since 2000;
    optional cuMemHostGetDevicePointer_v2(device_pointer: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) since 3020;
    optional cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) since 2030;
    optional cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) since 6050;
    optional cuMemHostUnregister(pointer: *mut c_void) since 4000;
    optional cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, pointer: CUdeviceptr) since 3020;
    optional cuMemAdvise(pointer: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice) since 8000;
    optional cuMemAdvise_v2(pointer: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: CUmemLocation) since 12020;
    optional cuMemPrefetchAsync(pointer: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) since 8000;
    optional cuMemPrefetchAsync_v2(pointer: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint, stream: CUstream) since 12020;
    optional cuMemRangeGetAttribute(data: *mut c_void, bytes: usize, attribute: CUmem_range_attribute, pointer: CUdeviceptr, length: usize) since 8000;
    optional cuMemRangeGetAttributes(data: *mut *mut c_void, sizes: *mut usize, attributes: *mut CUmem_range_attribute, count: usize, pointer: CUdeviceptr, length: usize) since 8000;
    required cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr) since 4000;
    optional cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, pointer: CUdeviceptr) since 7000;
    optional cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr) since 6000;

    // Copies and sets.
    optional cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) since 4000;
    required cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) since 3020;
    required cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) since 3020;
    required cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) since 3020;
    optional cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) since 4000;
    optional cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) since 3020;
    optional cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) since 3020;
    optional cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) since 3020;
    optional cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize) since 3020;
    optional cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize) since 3020;
    optional cuMemsetD32_v2(to: CUdeviceptr, value: u32, count: usize) since 3020;
    optional cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) since 3020;
    optional cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) since 3020;
    optional cuMemsetD32Async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream) since 3020;

    // Streams and events.
    optional cuStreamCreate(stream: *mut CUstream, flags: c_uint) since 2000;
    optional cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) since 5050;
    optional cuStreamDestroy_v2(stream: CUstream) since 4000;
    optional cuStreamQuery(stream: CUstream) since 2000;
    optional cuStreamSynchronize(stream: CUstream) since 2000;
    optional cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) since 3020;
    optional cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) since 9020;
    optional cuStreamAttachMemAsync(stream: CUstream, pointer: CUdeviceptr, length: usize, flags: c_uint) since 6000;
    optional cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) since 10000;
    optional cuEventCreate(event: *mut CUevent, flags: c_uint) since 2000;
    optional cuEventRecord(event: CUevent, stream: CUstream) since 2000;
    optional cuEventQuery(event: CUevent) since 2000;
    optional cuEventSynchronize(event: CUevent) since 2000;
    optional cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) since 2000;
    optional cuEventDestroy_v2(event: CUevent) since 4000;

    // Stream-ordered memory and pools.
    optional cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) since 11020;
    optional cuMemAllocFromPoolAsync(pointer: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) since 11020;
    optional cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) since 11020;
    optional cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) since 11020;
    optional cuMemPoolDestroy(pool: CUmemoryPool) since 11020;
    optional cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) since 11020;
    optional cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) since 11020;
    optional cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) since 11020;
    optional cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) since 11020;
    optional cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) since 11020;
    optional cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) since 11020;
    optional cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) since 11020;
    optional cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) since 11020;

    // Virtual memory.
    optional cuMemAddressReserve(pointer: *mut CUdeviceptr, bytes: usize, alignment: usize, address: CUdeviceptr, flags: u64) since 10020;
    optional cuMemAddressFree(pointer: CUdeviceptr, bytes: usize) since 10020;
    optional cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: u64) since 10020;
    optional cuMemRelease(handle: CUmemGenericAllocationHandle) since 10020;
    optional cuMemMap(pointer: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) since 10020;
    optional cuMemUnmap(pointer: CUdeviceptr, bytes: usize) since 10020;
    optional cuMemSetAccess(pointer: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize) since 10020;
    optional cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, pointer: CUdeviceptr) since 10020;
    optional cuMemExportToShareableHandle(shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64) since 10020;
    optional cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: CUmemAllocationHandleType) since 10020;
    optional cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags) since 10020;
    optional cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) since 10020;
    optional cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) since 11000;

    // Kernels.
    optional cuModuleLoadData(module: *mut CUmodule, image: *const c_void) since 2000;
    optional cuModuleUnload(module: CUmodule) since 2000;
    optional cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) since 2000;
    optional cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void) since 4000;
}
