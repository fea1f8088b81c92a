//! Names and descriptions of error codes.

use core::ffi::{CStr, c_char};
use core::ptr;

use cumem_sys::CUresult;

use crate::instance::{Answer, Instance, put};

macro_rules! codes {
    ($($name:ident $text:literal,)*) => {
        fn name(code: CUresult) -> Option<&'static CStr> {
            match code {
                $(CUresult::$name => CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                )
                .ok(),)*
                _ => None,
            }
        }

        fn description(code: CUresult) -> Option<&'static CStr> {
            match code {
                $(CUresult::$name => Some($text),)*
                _ => None,
            }
        }
    };
}

codes! {
    CUDA_SUCCESS c"no error",
    CUDA_ERROR_INVALID_VALUE c"invalid argument",
    CUDA_ERROR_OUT_OF_MEMORY c"out of memory",
    CUDA_ERROR_NOT_INITIALIZED c"initialization error",
    CUDA_ERROR_DEINITIALIZED c"driver shutting down",
    CUDA_ERROR_PROFILER_DISABLED c"profiler disabled",
    CUDA_ERROR_PROFILER_NOT_INITIALIZED c"profiler not initialized",
    CUDA_ERROR_PROFILER_ALREADY_STARTED c"profiler already started",
    CUDA_ERROR_PROFILER_ALREADY_STOPPED c"profiler already stopped",
    CUDA_ERROR_STUB_LIBRARY c"stub library",
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER c"call requires newer driver",
    CUDA_ERROR_DEVICE_UNAVAILABLE c"device unavailable",
    CUDA_ERROR_MULTICAST_RESOURCE_FULL c"multicast resource full",
    CUDA_ERROR_NO_DEVICE c"no CUDA-capable device is detected",
    CUDA_ERROR_INVALID_DEVICE c"invalid device ordinal",
    CUDA_ERROR_DEVICE_NOT_LICENSED c"device not licensed",
    CUDA_ERROR_INVALID_IMAGE c"invalid image",
    CUDA_ERROR_INVALID_CONTEXT c"invalid device context",
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT c"context already current",
    CUDA_ERROR_MAP_FAILED c"map failed",
    CUDA_ERROR_UNMAP_FAILED c"unmap failed",
    CUDA_ERROR_ARRAY_IS_MAPPED c"array is mapped",
    CUDA_ERROR_ALREADY_MAPPED c"already mapped",
    CUDA_ERROR_NO_BINARY_FOR_GPU c"no binary for gpu",
    CUDA_ERROR_ALREADY_ACQUIRED c"already acquired",
    CUDA_ERROR_NOT_MAPPED c"not mapped",
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY c"not mapped as array",
    CUDA_ERROR_NOT_MAPPED_AS_POINTER c"not mapped as pointer",
    CUDA_ERROR_ECC_UNCORRECTABLE c"ecc uncorrectable",
    CUDA_ERROR_UNSUPPORTED_LIMIT c"unsupported limit",
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE c"context already in use",
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED c"peer access unsupported",
    CUDA_ERROR_INVALID_PTX c"invalid ptx",
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT c"invalid graphics context",
    CUDA_ERROR_NVLINK_UNCORRECTABLE c"nvlink uncorrectable",
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND c"jit compiler not found",
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION c"unsupported ptx version",
    CUDA_ERROR_JIT_COMPILATION_DISABLED c"jit compilation disabled",
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY c"unsupported exec affinity",
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC c"unsupported devside sync",
    CUDA_ERROR_CONTAINED c"contained",
    CUDA_ERROR_INSUFFICIENT_LOADER_VERSION c"insufficient loader version",
    CUDA_ERROR_INVALID_SOURCE c"invalid source",
    CUDA_ERROR_FILE_NOT_FOUND c"file not found",
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND c"shared object symbol not found",
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED c"shared object init failed",
    CUDA_ERROR_OPERATING_SYSTEM c"operating system",
    CUDA_ERROR_INVALID_HANDLE c"invalid resource handle",
    CUDA_ERROR_ILLEGAL_STATE c"illegal state",
    CUDA_ERROR_LOSSY_QUERY c"lossy query",
    CUDA_ERROR_NOT_FOUND c"named symbol not found",
    CUDA_ERROR_NOT_READY c"device not ready",
    CUDA_ERROR_ILLEGAL_ADDRESS c"illegal address",
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES c"launch out of resources",
    CUDA_ERROR_LAUNCH_TIMEOUT c"launch timeout",
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING c"launch incompatible texturing",
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED c"peer access already enabled",
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED c"peer access not enabled",
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE c"primary context active",
    CUDA_ERROR_CONTEXT_IS_DESTROYED c"context is destroyed",
    CUDA_ERROR_ASSERT c"assert",
    CUDA_ERROR_TOO_MANY_PEERS c"too many peers",
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED c"host memory already registered",
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED c"host memory not registered",
    CUDA_ERROR_HARDWARE_STACK_ERROR c"hardware stack error",
    CUDA_ERROR_ILLEGAL_INSTRUCTION c"illegal instruction",
    CUDA_ERROR_MISALIGNED_ADDRESS c"misaligned address",
    CUDA_ERROR_INVALID_ADDRESS_SPACE c"invalid address space",
    CUDA_ERROR_INVALID_PC c"invalid pc",
    CUDA_ERROR_LAUNCH_FAILED c"launch failed",
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE c"cooperative launch too large",
    CUDA_ERROR_TENSOR_MEMORY_LEAK c"tensor memory leak",
    CUDA_ERROR_NOT_PERMITTED c"operation not permitted",
    CUDA_ERROR_NOT_SUPPORTED c"operation not supported",
    CUDA_ERROR_SYSTEM_NOT_READY c"system not ready",
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH c"system driver mismatch",
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE c"compat not supported on device",
    CUDA_ERROR_MPS_CONNECTION_FAILED c"mps connection failed",
    CUDA_ERROR_MPS_RPC_FAILURE c"mps rpc failure",
    CUDA_ERROR_MPS_SERVER_NOT_READY c"mps server not ready",
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED c"mps max clients reached",
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED c"mps max connections reached",
    CUDA_ERROR_MPS_CLIENT_TERMINATED c"mps client terminated",
    CUDA_ERROR_CDP_NOT_SUPPORTED c"cdp not supported",
    CUDA_ERROR_CDP_VERSION_MISMATCH c"cdp version mismatch",
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED c"stream capture unsupported",
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED c"stream capture invalidated",
    CUDA_ERROR_STREAM_CAPTURE_MERGE c"stream capture merge",
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED c"stream capture unmatched",
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED c"stream capture unjoined",
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION c"stream capture isolation",
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT c"stream capture implicit",
    CUDA_ERROR_CAPTURED_EVENT c"captured event",
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD c"stream capture wrong thread",
    CUDA_ERROR_TIMEOUT c"timeout",
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE c"graph exec update failure",
    CUDA_ERROR_EXTERNAL_DEVICE c"external device",
    CUDA_ERROR_INVALID_CLUSTER_SIZE c"invalid cluster size",
    CUDA_ERROR_FUNCTION_NOT_LOADED c"function not loaded",
    CUDA_ERROR_INVALID_RESOURCE_TYPE c"invalid resource type",
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION c"invalid resource configuration",
    CUDA_ERROR_KEY_ROTATION c"key rotation",
    CUDA_ERROR_STREAM_DETACHED c"stream detached",
    CUDA_ERROR_GRAPH_RECAPTURE_FAILURE c"graph recapture failure",
    CUDA_ERROR_FABRIC_NOT_READY c"fabric not ready",
    CUDA_ERROR_UNKNOWN c"unknown error",
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuGetErrorName(&self, code: CUresult, text: *mut *const c_char) -> Answer {
        // SAFETY: the caller gave a place for one pointer, or null.
        unsafe { put_text(text, name(code)) }
    }

    pub(crate) unsafe fn cuGetErrorString(
        &self,
        code: CUresult,
        text: *mut *const c_char,
    ) -> Answer {
        // SAFETY: the caller gave a place for one pointer, or null.
        unsafe { put_text(text, description(code)) }
    }
}

/// # Safety
/// `target` is null, or valid for a write.
unsafe fn put_text(target: *mut *const c_char, text: Option<&'static CStr>) -> Answer {
    // SAFETY: the caller's promise.
    unsafe { put(target, text.map_or(ptr::null(), CStr::as_ptr)) }?;
    text.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
