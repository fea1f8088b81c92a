//! The one list of entry points, and what is made of it: the functions that a program calls, their
//! numbers in the books, and how they are found by name.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cumem_sys::*;

use crate::slots;

/// Calls `$callback!` with every entry point of the simulated driver: its kind, its exact exported
/// name, its signature, and the CUDA version that first had it.
///
/// Kinds: `early` can be called before `cuInit`; `normal` can't; `legacy` is a name that today's
/// header no longer means.
#[doc(hidden)]
#[macro_export]
macro_rules! entry_points {
    ($callback:ident) => {
        $callback! {
            // Initialisation, versions, errors.
            early cuInit(flags: c_uint) since 2000;
            early cuDriverGetVersion(version: *mut c_int) since 2020;
            early cuGetErrorName(code: CUresult, name: *mut *const c_char) since 6000;
            early cuGetErrorString(code: CUresult, text: *mut *const c_char) since 6000;
            early cuGetProcAddress_v2(name: *const c_char, found: *mut *mut c_void, version: c_int, flags: cuuint64_t, status: *mut CUdriverProcAddressQueryResult) since 12000;

            // Devices.
            normal cuDeviceGet(device: *mut CUdevice, ordinal: c_int) since 2000;
            normal cuDeviceGetCount(count: *mut c_int) since 2000;
            normal cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) since 2000;
            normal cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) since 2000;
            normal cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) since 3020;
            normal cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) since 11040;
            normal cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) since 4000;

            // Contexts.
            normal cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) since 7000;
            normal cuDevicePrimaryCtxRelease_v2(device: CUdevice) since 11000;
            normal cuDevicePrimaryCtxReset_v2(device: CUdevice) since 11000;
            normal cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) since 11000;
            normal cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) since 7000;
            normal cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) since 3020;
            normal cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut CUctxCreateParams, flags: c_uint, device: CUdevice) since 12050;
            normal cuCtxDestroy_v2(context: CUcontext) since 4000;
            normal cuCtxPushCurrent_v2(context: CUcontext) since 4000;
            normal cuCtxPopCurrent_v2(context: *mut CUcontext) since 4000;
            normal cuCtxGetCurrent(context: *mut CUcontext) since 4000;
            normal cuCtxSetCurrent(context: CUcontext) since 4000;
            normal cuCtxGetDevice(device: *mut CUdevice) since 2000;
            normal cuCtxSynchronize() since 2000;
            normal cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) since 3020;
            normal cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) since 4000;
            normal cuCtxDisablePeerAccess(peer: CUcontext) since 4000;

            // Memory.
            normal cuMemGetInfo_v2(free: *mut usize, total: *mut usize) since 3020;
            normal cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) since 3020;
            normal cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint) since 6000;
            normal cuMemFree_v2(pointer: CUdeviceptr) since 3020;
            normal cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) since 2020;
            normal cuMemFreeHost(pointer: *mut c_void) since 2000;
            normal cuMemHostGetDevicePointer_v2(device_pointer: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) since 3020;
            normal cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) since 2030;
            normal cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) since 6050;
            normal cuMemHostUnregister(pointer: *mut c_void) since 4000;
            normal cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, pointer: CUdeviceptr) since 3020;
            normal cuMemAdvise(pointer: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice) since 8000;
            normal cuMemAdvise_v2(pointer: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: CUmemLocation) since 12020;
            normal cuMemPrefetchAsync(pointer: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) since 8000;
            normal cuMemPrefetchAsync_v2(pointer: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint, stream: CUstream) since 12020;
            normal cuMemRangeGetAttribute(data: *mut c_void, bytes: usize, attribute: CUmem_range_attribute, pointer: CUdeviceptr, length: usize) since 8000;
            normal cuMemRangeGetAttributes(data: *mut *mut c_void, sizes: *mut usize, attributes: *mut CUmem_range_attribute, count: usize, pointer: CUdeviceptr, length: usize) since 8000;
            normal cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr) since 4000;
            normal cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, pointer: CUdeviceptr) since 7000;
            normal cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr) since 6000;

            // Copies and sets.
            normal cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) since 4000;
            normal cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) since 3020;
            normal cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) since 3020;
            normal cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) since 3020;
            normal cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) since 4000;
            normal cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) since 3020;
            normal cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) since 3020;
            normal cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) since 3020;
            normal cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize) since 3020;
            normal cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize) since 3020;
            normal cuMemsetD32_v2(to: CUdeviceptr, value: u32, count: usize) since 3020;
            normal cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) since 3020;
            normal cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) since 3020;
            normal cuMemsetD32Async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream) since 3020;

            // Streams and events.
            normal cuStreamCreate(stream: *mut CUstream, flags: c_uint) since 2000;
            normal cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) since 5050;
            normal cuStreamDestroy_v2(stream: CUstream) since 4000;
            normal cuStreamQuery(stream: CUstream) since 2000;
            normal cuStreamSynchronize(stream: CUstream) since 2000;
            normal cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) since 3020;
            normal cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) since 9020;
            normal cuStreamAttachMemAsync(stream: CUstream, pointer: CUdeviceptr, length: usize, flags: c_uint) since 6000;
            normal cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) since 10000;
            normal cuEventCreate(event: *mut CUevent, flags: c_uint) since 2000;
            normal cuEventRecord(event: CUevent, stream: CUstream) since 2000;
            normal cuEventQuery(event: CUevent) since 2000;
            normal cuEventSynchronize(event: CUevent) since 2000;
            normal cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) since 2000;
            normal cuEventDestroy_v2(event: CUevent) since 4000;

            // Stream-ordered memory and pools.
            normal cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) since 11020;
            normal cuMemAllocFromPoolAsync(pointer: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) since 11020;
            normal cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) since 11020;
            normal cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) since 11020;
            normal cuMemPoolDestroy(pool: CUmemoryPool) since 11020;
            normal cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) since 11020;
            normal cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) since 11020;
            normal cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) since 11020;
            normal cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) since 11020;
            normal cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) since 11020;
            normal cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) since 11020;
            normal cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) since 11020;
            normal cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) since 11020;

            // Virtual memory.
            normal cuMemAddressReserve(pointer: *mut CUdeviceptr, bytes: usize, alignment: usize, address: CUdeviceptr, flags: u64) since 10020;
            normal cuMemAddressFree(pointer: CUdeviceptr, bytes: usize) since 10020;
            normal cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: u64) since 10020;
            normal cuMemRelease(handle: CUmemGenericAllocationHandle) since 10020;
            normal cuMemMap(pointer: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) since 10020;
            normal cuMemUnmap(pointer: CUdeviceptr, bytes: usize) since 10020;
            normal cuMemSetAccess(pointer: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize) since 10020;
            normal cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, pointer: CUdeviceptr) since 10020;
            normal cuMemExportToShareableHandle(shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64) since 10020;
            normal cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: CUmemAllocationHandleType) since 10020;
            normal cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags) since 10020;
            normal cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) since 10020;
            normal cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) since 11000;

            // Kernels.
            normal cuModuleLoadData(module: *mut CUmodule, image: *const c_void) since 2000;
            normal cuModuleUnload(module: CUmodule) since 2000;
            normal cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) since 2000;
            normal cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void) since 4000;

            // The entry points of CUDA 3.1 and earlier under their old names. Device pointers and
            // sizes were 32 bits wide; a context of today's API refuses them.
            legacy cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice) since 2000;
            legacy cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) since 2000;
            legacy cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) since 2000;
            legacy cuMemAlloc(pointer: *mut c_uint, bytes: c_uint) since 2000;
            legacy cuMemFree(pointer: c_uint) since 2000;
            legacy cuMemGetAddressRange(base: *mut c_uint, bytes: *mut c_uint, pointer: c_uint) since 2000;
            legacy cuMemHostGetDevicePointer(device_pointer: *mut c_uint, pointer: *mut c_void, flags: c_uint) since 2020;
            legacy cuMemcpyHtoD(to: c_uint, from: *const c_void, bytes: c_uint) since 2000;
            legacy cuMemcpyDtoH(to: *mut c_void, from: c_uint, bytes: c_uint) since 2000;
            legacy cuMemcpyDtoD(to: c_uint, from: c_uint, bytes: c_uint) since 2000;
            legacy cuMemcpyHtoDAsync(to: c_uint, from: *const c_void, bytes: c_uint, stream: CUstream) since 2000;
            legacy cuMemcpyDtoHAsync(to: *mut c_void, from: c_uint, bytes: c_uint, stream: CUstream) since 2000;
            legacy cuMemcpyDtoDAsync(to: c_uint, from: c_uint, bytes: c_uint, stream: CUstream) since 3000;
            legacy cuMemsetD8(to: c_uint, value: u8, count: c_uint) since 2000;
            legacy cuMemsetD16(to: c_uint, value: u16, count: c_uint) since 2000;
            legacy cuMemsetD32(to: c_uint, value: u32, count: c_uint) since 2000;

            // Old names whose form has not changed: they do what the versioned ones do.
            legacy cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) since 4000;
            legacy cuDevicePrimaryCtxRelease(device: CUdevice) since 7000;
            legacy cuDevicePrimaryCtxReset(device: CUdevice) since 7000;
            legacy cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) since 7000;
            legacy cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) since 9020;
            legacy cuCtxDestroy(context: CUcontext) since 2000;
            legacy cuCtxPushCurrent(context: CUcontext) since 2000;
            legacy cuCtxPopCurrent(context: *mut CUcontext) since 2000;
            legacy cuStreamDestroy(stream: CUstream) since 2000;
            legacy cuEventDestroy(event: CUevent) since 2000;
            legacy cuGetProcAddress(name: *const c_char, found: *mut *mut c_void, version: c_int, flags: cuuint64_t) since 11030;
        }
    };
}

/// What the driver's entry points have in common.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) since: c_int,
    pub(crate) kind: EntryKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryKind {
    Early,
    Normal,
    Legacy,
}

macro_rules! kind {
    (early) => {
        EntryKind::Early
    };
    (normal) => {
        EntryKind::Normal
    };
    (legacy) => {
        EntryKind::Legacy
    };
}

/// Has the compiler compare a signature with the generated declaration of that name.
macro_rules! compare {
    (legacy $name:ident $signature:ty) => {};
    ($kind:ident $name:ident $signature:ty) => {
        const _: $signature = cumem_sys::bindings::$name;
    };
}

/// The same function once per slot.
macro_rules! per_slot {
    ($name:ident) => {
        per_slot!($name 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28
            29 30 31)
    };
    ($name:ident $($slot:literal)*) => {
        [$(entry::$name::<$slot> as *const c_void),*]
    };
}

macro_rules! define {
    ($(
        $kind:ident $name:ident($($argument:ident: $type:ty),* $(,)?) since $since:literal;
    )*) => {
        /// The number of an entry point.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(non_camel_case_types, reason = "each has its C name")]
        #[repr(usize)]
        pub(crate) enum Call {
            $($name),*
        }

        /// Every entry point, in the order of [`Call`].
        pub(crate) static ENTRIES: &[Entry] = &[$(Entry {
            name: stringify!($name),
            since: $since,
            kind: kind!($kind),
        }),*];

        $(compare!($kind $name unsafe extern "C" fn($($type),*) -> CUresult);)*

        /// The functions that a program calls, once per slot.
        ///
        /// # Safety
        /// As the manual says of the function of that name. The slot is taken, and stays so until
        /// the call returns.
        #[doc(hidden)]
        #[allow(non_snake_case, reason = "each has its C name")]
        #[allow(clippy::missing_safety_doc, reason = "the module says it for all of them")]
        #[allow(clippy::too_many_arguments, reason = "the C functions have as many")]
        #[allow(missing_docs, reason = "the manual documents them")]
        pub mod entry {
            use super::*;

            $(
                pub unsafe extern "C" fn $name<const SLOT: usize>(
                    $($argument: $type),*
                ) -> CUresult {
                    // SAFETY: the caller keeps the slot taken.
                    match unsafe { slots::instance(SLOT) } {
                        Some(instance) => instance.enter(
                            Call::$name,
                            // SAFETY: the caller keeps what the manual asks for.
                            |instance| unsafe { instance.$name($($argument),*) },
                        ),
                        None => CUresult::CUDA_ERROR_DEINITIALIZED,
                    }
                }
            )*
        }

        /// The addresses of the functions of one entry point, by slot.
        fn addresses(call: Call) -> [*const c_void; slots::SLOTS] {
            match call {
                $(Call::$name => per_slot!($name),)*
            }
        }

        impl Call {
            /// The entry point with that exact name.
            pub(crate) fn named(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

entry_points!(define);

impl Call {
    pub(crate) fn entry(self) -> &'static Entry {
        &ENTRIES[self as usize]
    }

    /// Its function in a slot.
    pub(crate) fn address(self, slot: usize) -> *mut c_void {
        addresses(self)[slot].cast_mut()
    }
}

/// The entry point with that exact name, as C spells it.
pub(crate) fn named(name: &CStr) -> Option<Call> {
    Call::named(name.to_str().ok()?)
}

/// The names of all entry points, the legacy ones included.
pub fn entry_names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}
