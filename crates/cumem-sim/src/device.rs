//! Devices.

use core::ffi::{c_char, c_int};

use cumem_sys::{CUdevice, CUdevice_attribute, CUresult, CUuuid};

use crate::instance::{Answer, Instance, State, put};
use crate::pool::Pool;

const NAME: &str = "CUDA device simulated by cumem-sim";

#[derive(Debug)]
pub(crate) struct Device {
    /// The handle of the primary context: the same one each time it is made.
    pub(crate) primary: usize,
    /// The references to the primary context.
    pub(crate) references: usize,
    pub(crate) primary_flags: u32,
    pub(crate) default_pool: usize,
    pub(crate) pool: usize,
    /// The bytes that are taken.
    pub(crate) used: usize,
}

impl Device {
    pub(crate) fn new(state: &mut State, ordinal: c_int) -> Self {
        let pool = crate::instance::fresh_handle();
        state.pools.insert(pool, Pool::new(ordinal, true));
        Self {
            primary: crate::instance::fresh_handle(),
            references: 0,
            primary_flags: 0,
            default_pool: pool,
            pool,
            used: 0,
        }
    }
}

impl State {
    pub(crate) fn device(&mut self, device: CUdevice) -> Answer<&mut Device> {
        usize::try_from(device)
            .ok()
            .and_then(|at| self.devices.get_mut(at))
            .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) fn is_device(&self, device: CUdevice) -> Answer {
        if (0..self.config().devices).contains(&device) {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
        }
    }

    pub(crate) unsafe fn cuDeviceGet(&self, device: *mut CUdevice, ordinal: c_int) -> Answer {
        self.is_device(ordinal)?;
        // SAFETY: the caller gave a place for the handle, or null.
        unsafe { put(device, ordinal) }
    }

    pub(crate) unsafe fn cuDeviceGetCount(&self, count: *mut c_int) -> Answer {
        // SAFETY: the caller gave a place for one integer, or null.
        unsafe { put(count, self.config().devices) }
    }

    pub(crate) unsafe fn cuDeviceGetName(
        &self,
        name: *mut c_char,
        length: c_int,
        device: CUdevice,
    ) -> Answer {
        self.is_device(device)?;
        let room = usize::try_from(length).unwrap_or(0);
        if name.is_null() || room == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let count = NAME.len().min(room - 1);
        // SAFETY: the caller gave `length` bytes, and `count` + 1 is not more.
        unsafe {
            core::ptr::copy_nonoverlapping(NAME.as_ptr().cast::<c_char>(), name, count);
            name.add(count).write(0);
        }
        Ok(())
    }

    pub(crate) unsafe fn cuDeviceGetUuid_v2(&self, uuid: *mut CUuuid, device: CUdevice) -> Answer {
        self.is_device(device)?;
        let mut bytes = [0; 16];
        let text = b"cumem-sim device";
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = text[at] as c_char;
        }
        bytes[15] = device as c_char;
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(uuid, CUuuid { bytes }) }
    }

    pub(crate) unsafe fn cuDeviceGetUuid(&self, uuid: *mut CUuuid, device: CUdevice) -> Answer {
        // SAFETY: passed on; the form is the same.
        unsafe { self.cuDeviceGetUuid_v2(uuid, device) }
    }

    pub(crate) unsafe fn cuDeviceTotalMem_v2(&self, bytes: *mut usize, device: CUdevice) -> Answer {
        self.is_device(device)?;
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(bytes, self.config().memory_per_device) }
    }

    pub(crate) unsafe fn cuDeviceCanAccessPeer(
        &self,
        can: *mut c_int,
        device: CUdevice,
        peer: CUdevice,
    ) -> Answer {
        self.is_device(device)?;
        self.is_device(peer)?;
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(can, c_int::from(device != peer)) }
    }

    pub(crate) unsafe fn cuDeviceGetAttribute(
        &self,
        value: *mut c_int,
        attribute: CUdevice_attribute,
        device: CUdevice,
    ) -> Answer {
        self.is_device(device)?;
        let number = attribute.0 as c_int;
        let answer = match self.config().attributes.get(&number) {
            Some(&value) => value,
            None => attribute_of(attribute, device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
        };
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(value, answer) }
    }
}

/// The last attribute that the header has.
const LAST_ATTRIBUTE: u32 = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX.0 - 1;

/// What the attributes are, unless the configuration says otherwise; `None` for what isn't one.
fn attribute_of(attribute: CUdevice_attribute, device: CUdevice) -> Option<c_int> {
    use CUdevice_attribute as A;
    Some(match attribute {
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
        | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => c_int::MAX,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
        A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 132,
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 0,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => device + 1,
        A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT => 512,
        A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | A::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => 1,
        CUdevice_attribute(1..=LAST_ATTRIBUTE) => 0,
        _ => return None,
    })
}
