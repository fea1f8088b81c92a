//! Finding entry points by name and version.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use cumem_sys::{CUdriverProcAddressQueryResult as Status, CUresult, cuuint64_t};

use crate::instance::{Answer, Instance, put};
use crate::slots;
use crate::table::{Call, ENTRIES};

/// What flags can be given: the null stream's meaning.
const FLAGS: cuuint64_t = 0b11;

/// The forms of a function, by the name without its version. A name with one has no forms: the
/// version is asked for by number.
fn forms(base: &str) -> impl Iterator<Item = &'static str> {
    ENTRIES
        .iter()
        .map(|entry| entry.name)
        .filter(move |name| without_version(name) == base)
}

fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => name,
    }
}

impl Instance {
    /// The newest form of a function that a version of the API has.
    fn form(&self, base: &str, version: c_int) -> Result<Call, Status> {
        let mut known = false;
        let best = forms(base)
            .filter_map(Call::named)
            .filter(|&call| self.config().has(call))
            .inspect(|_| known = true)
            .filter(|&call| call.entry().since <= version)
            .max_by_key(|&call| (call.entry().since, call as usize));
        best.ok_or(if known {
            Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
        } else {
            Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
        })
    }

    /// # Safety
    /// `name` is null or a C string.
    unsafe fn find_form(
        &self,
        name: *const c_char,
        version: c_int,
        flags: cuuint64_t,
    ) -> Answer<Result<*mut c_void, Status>> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if name.is_null() || flags & !FLAGS != 0 || version > self.config().driver_version {
            return Err(invalid);
        }
        // SAFETY: it isn't null, and the caller promises a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let name = name.to_str().map_err(|_| invalid)?;
        let slot = slots::slot_of(self.number()).ok_or(CUresult::CUDA_ERROR_DEINITIALIZED)?;
        let address = |call: Call| match self.config().exported {
            Some(exported) => exported(call.entry().name),
            None => call.address(slot),
        };
        Ok(self.form(name, version).map(address))
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuGetProcAddress_v2(
        &self,
        name: *const c_char,
        found: *mut *mut c_void,
        version: c_int,
        flags: cuuint64_t,
        status: *mut Status,
    ) -> Answer {
        // SAFETY: the caller gave a C string, or null.
        let answer = unsafe { self.find_form(name, version, flags) }?;
        // SAFETY: the caller gave places for both, or null.
        unsafe {
            put(found, answer.unwrap_or(ptr::null_mut()))?;
            if !status.is_null() {
                let code = answer.err().unwrap_or(Status::CU_GET_PROC_ADDRESS_SUCCESS);
                put(status, code)?;
            }
        }
        // The driver answers success with a null pointer for what it doesn't have, and this code
        // only if there was no place to put the status.
        if answer.is_err() && status.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        Ok(())
    }

    pub(crate) unsafe fn cuGetProcAddress(
        &self,
        name: *const c_char,
        found: *mut *mut c_void,
        version: c_int,
        flags: cuuint64_t,
    ) -> Answer {
        // SAFETY: passed on.
        unsafe { self.cuGetProcAddress_v2(name, found, version, flags, ptr::null_mut()) }
    }
}
