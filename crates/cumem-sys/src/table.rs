//! The one table of entry points: exact exported name, since when, and signature.
//!
//! Unversioned names are the oldest form of a function. Where a later form exists (`_v2`), the
//! unversioned export still is the old one, with 32-bit device pointers in the worst case; so each
//! line here names the one form that is meant, and the compiler checks its signature against the
//! generated declaration.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use std::ffi::CString;

use crate::bindings::*;
use crate::error::CuError;
use crate::fork;

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

    /// The name in C source, such as `cuMemFree`: what `cuGetProcAddress` is asked for, together
    /// with [`since`](Self::since), which chooses the form.
    #[must_use]
    pub fn c_name(&self) -> &'static str {
        let name = self.name();
        match name.rsplit_once("_v") {
            Some((base, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => base,
            _ => name,
        }
    }

    /// The CUDA version whose driver first had this form, as the driver counts: 12020 is 12.2.
    #[must_use]
    pub fn since(&self) -> u32 {
        self.since
    }

    /// Whether a driver without it is refused.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }

    pub(crate) fn exported_name(&self) -> &'static CStr {
        self.name
    }
}

/// How the functions of a driver are found.
pub(crate) trait Resolve {
    /// The function exported under this exact name; null if there is none.
    fn exported(&self, symbol: &Symbol) -> *mut c_void;
}

/// Where the function of a symbol was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Exported by the library under its exact name.
    Export,
    /// Not exported, but handed out by `cuGetProcAddress_v2` for the C name and the version that
    /// the form appeared in.
    ProcAddress,
    /// Bound by the linker.
    Linked,
}

/// `cuGetProcAddress_v2`.
type ProcAddress = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    cuuint64_t,
    *mut CUdriverProcAddressQueryResult,
) -> CUresult;

/// What finds each function: the export of the exact name, else the driver's own look-up.
struct Finder<'a> {
    exports: &'a dyn Resolve,
    proc_address: Option<ProcAddress>,
}

impl Finder<'_> {
    fn find(&self, symbol: &Symbol) -> (*mut c_void, Source) {
        let exported = self.exports.exported(symbol);
        if !exported.is_null() {
            return (exported, Source::Export);
        }
        (self.ask_driver(symbol), Source::ProcAddress)
    }

    /// What the driver hands out for the C name at the version in which the form appeared: never at
    /// the driver's own version, which would give whatever form is newest there.
    ///
    /// A driver that lacks the form may hand out an older one, with another ABI. That one it hands
    /// out for the version before as well, by which it is known.
    fn ask_driver(&self, symbol: &Symbol) -> *mut c_void {
        let Ok(name) = CString::new(symbol.c_name()) else {
            return ptr::null_mut();
        };
        let version = symbol.since.cast_signed();
        let found = self.look_up(&name, version);
        if found == self.look_up(&name, version - 1) {
            return ptr::null_mut();
        }
        found
    }

    /// The call can succeed with a null pointer, and refuses a version above the driver's own.
    fn look_up(&self, name: &CStr, version: c_int) -> *mut c_void {
        let Some(proc_address) = self.proc_address else {
            return ptr::null_mut();
        };
        let mut found = ptr::null_mut();
        let mut status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
        // SAFETY: the name is a C string, and the call writes one pointer and one status.
        let code = unsafe { proc_address(name.as_ptr(), &mut found, version, 0, &mut status) };
        if code == CUresult::CUDA_SUCCESS {
            found
        } else {
            ptr::null_mut()
        }
    }
}

macro_rules! is_required {
    (required) => {
        true
    };
    (optional) => {
        false
    };
}

#[cfg(feature = "linked")]
macro_rules! linked {
    (required $name:ident $finder:ident) => {
        (crate::bindings::$name as *mut c_void, Source::Linked)
    };
    (optional $name:ident $finder:ident) => {
        $finder.find(&symbols::$name)
    };
}

macro_rules! table {
    ($(
        $need:ident $name:ident($($argument:ident: $type:ty),* $(,)?) since $since:literal;
    )*) => {
        /// The resolved entry points of one driver.
        #[allow(non_snake_case, reason = "each field has its C name")]
        pub(crate) struct Table {
            /// The driver's version, or 0 as long as it isn't known.
            version: c_int,
            /// The generation of forks that it was made in.
            generation: u32,
            sources: Vec<Option<Source>>,
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
            /// Looks every symbol up.
            ///
            /// # Safety
            /// What `exports` finds under a name is the driver's function of that name.
            pub(crate) unsafe fn resolve(exports: &dyn Resolve) -> Self {
                // SAFETY: the caller's promise.
                let finder = unsafe { Finder::new(exports) };
                let mut sources = Vec::with_capacity(SYMBOLS.len());
                Self {
                    version: 0,
                    generation: fork::generation(),
                    $($name: {
                        let (found, source) = finder.find(&symbols::$name);
                        sources.push((!found.is_null()).then_some(source));
                        // SAFETY: null is `None`; else the caller, or the driver's own look-up for
                        // this name and version, says that this is the function of that name, whose
                        // signature the constant above compares with the header's declaration.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($type),*) -> CUresult>,
                            >(found)
                        }
                    },)*
                    sources,
                }
            }

            /// The required symbols from the linker, the others as they are found at run time.
            #[cfg(feature = "linked")]
            pub(crate) fn linked(exports: &dyn Resolve) -> Self {
                // SAFETY: `exports` looks into this process, which the driver is linked into.
                let finder = unsafe { Finder::new(exports) };
                let mut sources = Vec::with_capacity(SYMBOLS.len());
                Self {
                    version: 0,
                    generation: fork::generation(),
                    $($name: {
                        let (found, source) = linked!($need $name finder);
                        sources.push((!found.is_null()).then_some(source));
                        // SAFETY: as in `resolve`.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($type),*) -> CUresult>,
                            >(found)
                        }
                    },)*
                    sources,
                }
            }

            /// The address of each symbol, in the order of [`SYMBOLS`].
            fn addresses(&self) -> [Option<*const c_void>; SYMBOLS.len()] {
                [$(self.$name.map(|function| function as *const c_void)),*]
            }

            $(
                #[allow(non_snake_case, reason = "each method has its C name")]
                #[allow(clippy::too_many_arguments, reason = "the C functions have as many")]
                #[inline]
                pub(crate) unsafe fn $name(&self, $($argument: $type),*) -> Result<(), CuError> {
                    let Some(function) = self.$name else {
                        return Err(CuError::missing(&symbols::$name, self.version));
                    };
                    // SAFETY: the pointer is the driver's function of that name; the caller keeps
                    // what the function asks of its arguments.
                    let code = unsafe { function($($argument),*) };
                    if code == CUresult::CUDA_SUCCESS {
                        Ok(())
                    } else {
                        Err(CuError::answered(&symbols::$name, code, self.generation))
                    }
                }
            )*
        }
    };
}

impl<'a> Finder<'a> {
    /// # Safety
    /// What `exports` finds under a name is the driver's function of that name.
    unsafe fn new(exports: &'a dyn Resolve) -> Self {
        let found = exports.exported(&symbols::cuGetProcAddress_v2);
        Self {
            exports,
            // SAFETY: null is `None`, else the caller promises that it is the function of that name.
            proc_address: unsafe {
                core::mem::transmute::<*mut c_void, Option<ProcAddress>>(found)
            },
        }
    }
}

impl Table {
    /// The first required symbol that the driver lacks.
    pub(crate) fn first_missing(&self) -> Option<&'static Symbol> {
        SYMBOLS
            .iter()
            .zip(&self.sources)
            .find(|(symbol, source)| symbol.required && source.is_none())
            .map(|(symbol, _)| *symbol)
    }

    pub(crate) fn set_version(&mut self, version: c_int) {
        self.version = version;
    }

    pub(crate) fn version(&self) -> c_int {
        self.version
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Each symbol with its address and where that is from.
    pub(crate) fn resolved(&self) -> Vec<(&'static Symbol, Option<(*const c_void, Source)>)> {
        SYMBOLS
            .iter()
            .zip(self.addresses())
            .zip(&self.sources)
            .map(|((symbol, address), source)| (*symbol, address.zip(*source)))
            .collect()
    }
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
