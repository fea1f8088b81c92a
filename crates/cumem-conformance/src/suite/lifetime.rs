//! Forked children, and the end of the process.

use core::ffi::c_int;

use cumem_sys::CUresult;

use super::KIB;
use crate::behaviour::{Check, behaviours, call, holds, same};
use crate::ground::Ground;

/// Runs a part in a forked child, and returns what it returned, from 0 to 255.
fn in_child(part: impl FnOnce() -> u8) -> Check<c_int> {
    // SAFETY: the child calls the driver, which is what is being looked at, and ends at once by
    // `_exit`. This process has few threads, none of which holds a lock that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = part();
        // SAFETY: nothing of the process is to be torn down.
        unsafe { libc::_exit(c_int::from(answer)) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the status has a place.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    holds(
        waited == child && libc::WIFEXITED(status),
        "the child did not end by itself",
    )?;
    Ok(libc::WEXITSTATUS(status))
}

/// A code as a child's answer: 3 is `CUDA_ERROR_NOT_INITIALIZED`.
fn as_answer<T>(result: Result<T, cumem_sys::CuError>) -> u8 {
    match result {
        Ok(_) => 0,
        Err(error) => error.code().0.min(255) as u8,
    }
}

const NOT_INITIALIZED: c_int = CUresult::CUDA_ERROR_NOT_INITIALIZED.0 as c_int;

fn from_child(g: &Ground<'_>, part: impl FnOnce(&Ground<'_>) -> u8) -> Check<c_int> {
    in_child(|| part(g))
}

behaviours! {
    area "lifetime";

    /// In a forked child, allocating is refused.
    alone fn a_forked_child_allocates_nothing(g) {
        same(from_child(g, |g| as_answer(g.mem_alloc(256)))?, NOT_INITIALIZED)?;
    }

    /// In a forked child, freeing is refused.
    alone fn a_forked_child_frees_nothing(g) {
        let pointer = g.managed(4 * KIB)?;
        let answer = from_child(g, |g| as_answer(call!(g.mem_free(pointer))))?;
        call!(g.mem_free(pointer))?;
        same(answer, NOT_INITIALIZED)?;
    }

    /// In a forked child, not even the initialisation succeeds.
    alone fn a_forked_child_is_not_initialised(g) {
        let init = super::legacy::init(g)?;
        // SAFETY: the initialisation may be called at any time.
        let answer = in_child(|| unsafe { init(0) }.0.min(255) as u8)?;
        same(answer, NOT_INITIALIZED)?;
    }

    /// In a forked child, asking for devices is refused.
    alone fn a_forked_child_counts_no_devices(g) {
        same(from_child(g, |g| as_answer(g.device_get_count()))?, NOT_INITIALIZED)?;
    }

    /// In a forked child, the error says that it is one.
    alone fn a_forked_childs_error_says_so(g) {
        let answer = from_child(g, |g| {
            u8::from(g.is_forked()) + 2 * u8::from(g.mem_alloc(256).is_err_and(|it| it.is_forked()))
        })?;
        same(answer, 3)?;
    }

    /// The parent goes on unharmed.
    alone fn the_parent_of_a_fork_goes_on(g) {
        let pointer = g.mem_alloc(4 * KIB)?;
        from_child(g, |g| as_answer(call!(g.mem_free(pointer))))?;
        call!(g.memset_d8(pointer, 1, 4 * KIB))?;
        call!(g.mem_free(pointer))?;
        same(g.is_forked(), false)?;
    }

    /// Memory is freed in an exit handler that the program registered.
    alone fn memory_is_freed_at_exit(g) {
        static LEFT: std::sync::Mutex<Option<(cumem_sys::Driver, u64)>> =
            std::sync::Mutex::new(None);
        extern "C" fn free() {
            let Ok(mut left) = LEFT.lock() else { return };
            if let Some((driver, pointer)) = left.take()
                && let Err(error) = call!(driver.mem_free(pointer))
            {
                // SAFETY: nothing more is to be done in this process.
                unsafe { libc::_exit(error.code().0.min(255) as c_int) };
            }
        }
        let program = std::env::current_exe().map_err(|error| {
            crate::behaviour::Stop::Failed(error.to_string())
        })?;
        if std::env::var_os("CUMEM_CONFORMANCE_AT_EXIT").is_some() {
            // Held beyond the check's end: the memory must not go with the context.
            g.device_primary_ctx_retain(g.device())?;
            let pointer = g.managed(4 * KIB)?;
            if let Ok(mut left) = LEFT.lock() {
                *left = Some(((**g).clone(), pointer));
            }
            // SAFETY: the handler is a function of the program, and doesn't unwind.
            unsafe { libc::atexit(free) };
            return Ok(());
        }
        let mut arguments = std::env::args().skip(1);
        let driver = arguments
            .by_ref()
            .skip_while(|argument| argument != "--driver")
            .nth(1);
        let Some(driver) = driver else {
            return crate::behaviour::skip("this program isn't started with --driver");
        };
        let status = std::process::Command::new(program)
            .args(["--driver", &driver, "--child", "lifetime.memory_is_freed_at_exit"])
            .env("CUMEM_CONFORMANCE_AT_EXIT", "1")
            .stdout(std::process::Stdio::null())
            .status()
            .map_err(|error| crate::behaviour::Stop::Failed(error.to_string()))?;
        same(status.code(), Some(0))?;
    }
}
