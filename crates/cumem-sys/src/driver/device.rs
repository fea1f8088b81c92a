//! *Device Management*, and peers.

use core::ffi::{CStr, c_char};

use super::Driver;
use crate::bindings::{CUdevice, CUdevice_attribute, CUresult, CUuuid};
use crate::error::CuError;

impl Driver {
    /// The handle of the device with this ordinal, counted from 0. (*Device Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` if there is no such device; the error then says how many there
    /// are.
    pub fn device_get(&self, ordinal: i32) -> Result<CUdevice, CuError> {
        let mut device = 0;
        // SAFETY: the call writes one value to a local.
        match unsafe { self.table().cuDeviceGet(&mut device, ordinal) } {
            Ok(()) => Ok(device),
            Err(error) => Err(self.explain_ordinal(error, ordinal)),
        }
    }

    #[cold]
    fn explain_ordinal(&self, error: CuError, ordinal: i32) -> CuError {
        match self.device_get_count() {
            Ok(count)
                if error.code() == CUresult::CUDA_ERROR_INVALID_DEVICE
                    && !(0..count).contains(&ordinal) =>
            {
                error.of_ordinal(ordinal, count)
            }
            _ => error,
        }
    }

    /// How many devices there are. (*Device Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_get_count(&self) -> Result<i32, CuError> {
        let mut count = 0;
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuDeviceGetCount(&mut count) }?;
        Ok(count)
    }

    /// The device's name. (*Device Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_get_name(&self, device: CUdevice) -> Result<String, CuError> {
        let mut name = [0 as c_char; 256];
        // SAFETY: the call writes at most as many bytes as it is told that there are, with a zero at the
        // end.
        unsafe { self.table().cuDeviceGetName(name.as_mut_ptr(), 255, device) }?;
        // SAFETY: the last byte was never written, so a zero ends the string within the array.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(name.to_string_lossy().into_owned())
    }

    /// The device's UUID, which is the same for every process. (*Device Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_get_uuid(&self, device: CUdevice) -> Result<CUuuid, CuError> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuDeviceGetUuid_v2(&mut uuid, device) }?;
        Ok(uuid)
    }

    /// The device's memory in bytes. (*Device Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_total_mem(&self, device: CUdevice) -> Result<usize, CuError> {
        let mut bytes = 0;
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuDeviceTotalMem_v2(&mut bytes, device) }?;
        Ok(bytes)
    }

    /// One of the device's properties; its meaning and unit are the attribute's. (*Device Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_get_attribute(
        &self,
        attribute: CUdevice_attribute,
        device: CUdevice,
    ) -> Result<i32, CuError> {
        let mut value = 0;
        // SAFETY: the call writes one value to a local.
        unsafe {
            self.table()
                .cuDeviceGetAttribute(&mut value, attribute, device)
        }?;
        Ok(value)
    }

    /// Whether `device` can reach the memory of `peer` directly. (*Peer Context Memory Access*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_can_access_peer(
        &self,
        device: CUdevice,
        peer: CUdevice,
    ) -> Result<bool, CuError> {
        let mut can = 0;
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuDeviceCanAccessPeer(&mut can, device, peer) }?;
        Ok(can != 0)
    }
}
