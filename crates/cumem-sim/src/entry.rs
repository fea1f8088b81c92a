//! The one list of entry points: exact exported name, signature, and what answers it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cumem_sys::bindings::*;

use crate::{context, copy, device, memory, pointer, slot};

macro_rules! entries {
    ($(
        $name:ident($($argument:ident: $type:ty),* $(,)?) => $handler:path;
    )*) => {
        /// The entry points, for each simulated driver of the process by its slot.
        #[allow(non_snake_case, reason = "each function has its C name")]
        #[allow(clippy::missing_safety_doc, reason = "NVIDIA's manual documents them")]
        #[doc(hidden)]
        pub mod entries {
            use super::*;

            $(
                #[allow(missing_docs, reason = "NVIDIA's manual documents it")]
                pub unsafe extern "C" fn $name<const SLOT: usize>($($argument: $type),*) -> CUresult {
                    slot::call(SLOT, stringify!($name), |instance| {
                        // SAFETY: the caller of the driver keeps what NVIDIA's manual asks.
                        unsafe { $handler(instance $(, $argument)*) }
                    })
                }

                // The signature is the header's.
                const _: unsafe extern "C" fn($($type),*) -> CUresult = cumem_sys::bindings::$name;
            )*
        }

        /// The entry point of a slot by its exact name.
        pub(crate) fn resolve<const SLOT: usize>(name: &CStr) -> *mut c_void {
            match name.to_bytes() {
                $(name if name == stringify!($name).as_bytes() => {
                    let function: unsafe extern "C" fn($($type),*) -> CUresult =
                        entries::$name::<SLOT>;
                    function as *mut c_void
                })*
                _ => std::ptr::null_mut(),
            }
        }

        /// Calls a macro with every entry point: `name(argument: type, ...);`.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! for_each_entry {
            ($with:ident) => {
                $with! { $($name($($argument: $type),*);)* }
            };
        }
    };
}

entries! {
    cuInit(flags: c_uint) => device::init;
    cuDriverGetVersion(version: *mut c_int) => device::driver_get_version;
    cuGetErrorName(code: CUresult, text: *mut *const c_char) => device::get_error_name;
    cuGetErrorString(code: CUresult, text: *mut *const c_char) => device::get_error_string;

    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) => device::get;
    cuDeviceGetCount(count: *mut c_int) => device::get_count;
    cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) => device::get_name;
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) => device::get_uuid;
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) => device::get_attribute;
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) => device::total_mem;
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) => device::can_access_peer;

    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) => context::primary_retain;
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) => context::primary_release;
    cuDevicePrimaryCtxReset_v2(device: CUdevice) => context::primary_reset;
    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) => context::primary_set_flags;
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) => context::primary_get_state;
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) => context::create;
    cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut CUctxCreateParams, flags: c_uint, device: CUdevice) => context::create_with_parameters;
    cuCtxDestroy_v2(context: CUcontext) => context::destroy_created;
    cuCtxPushCurrent_v2(context: CUcontext) => context::push;
    cuCtxPopCurrent_v2(context: *mut CUcontext) => context::pop;
    cuCtxGetCurrent(context: *mut CUcontext) => context::get_current;
    cuCtxSetCurrent(context: CUcontext) => context::set_current;
    cuCtxGetDevice(device: *mut CUdevice) => context::get_device;
    cuCtxSynchronize() => context::synchronize;
    cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) => context::get_api_version;

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => memory::get_info;
    cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) => memory::alloc;
    cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint) => memory::alloc_managed;
    cuMemFree_v2(pointer: CUdeviceptr) => memory::free_device;
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) => memory::host_alloc;
    cuMemFreeHost(pointer: *mut c_void) => memory::free_host;
    cuMemHostGetDevicePointer_v2(device_pointer: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) => memory::host_get_device_pointer;
    cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) => memory::host_get_flags;
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, pointer: CUdeviceptr) => memory::get_address_range;
    cuMemAdvise(pointer: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice) => memory::advise;
    cuMemAdvise_v2(pointer: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: CUmemLocation) => memory::advise_location;
    cuMemPrefetchAsync(pointer: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) => memory::prefetch;
    cuMemPrefetchAsync_v2(pointer: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint, stream: CUstream) => memory::prefetch_location;
    cuMemRangeGetAttribute(data: *mut c_void, size: usize, attribute: CUmem_range_attribute, pointer: CUdeviceptr, bytes: usize) => memory::range_get_attribute;
    cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr) => pointer::get_attribute;

    cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy::any_to_any;
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) => copy::host_to_device;
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) => copy::device_to_host;
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy::device_to_device;
    cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize) => copy::set_8;
    cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize) => copy::set_16;
    cuMemsetD32_v2(to: CUdeviceptr, value: u32, count: usize) => copy::set_32;
}
