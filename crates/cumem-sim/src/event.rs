//! Events: points in streams, and when they were passed.

use core::ffi::c_uint;
use core::ptr;
use std::time::Instant;

use cumem_sys::{CUevent, CUevent_flags, CUresult, CUstream};

use crate::instance::{Answer, Instance, State, fresh_handle, put};
use crate::stream::{Point, Work};

#[derive(Debug)]
pub(crate) struct Event {
    context: usize,
    flags: u32,
    /// How often it was recorded.
    version: u64,
    /// Where it was recorded last.
    point: Option<Point>,
    /// When that was passed.
    time: Option<Instant>,
}

impl Event {
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    pub(crate) fn point(&self) -> Option<Point> {
        self.point
    }

    pub(crate) fn pass(&mut self, version: u64, now: Instant) {
        if version == self.version {
            self.time = Some(now);
        }
    }

    fn has_timing(&self) -> bool {
        self.flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 == 0
    }
}

impl State {
    pub(crate) fn event(&mut self, event: CUevent) -> Answer<&mut Event> {
        self.events
            .get_mut(&event.addr())
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}

impl Instance {
    fn destroy_event(&self, event: CUevent) -> Answer {
        // Streams that wait for it hold the point, not the event.
        match self.state().events.remove(&event.addr()) {
            Some(_) => Ok(()),
            None => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuEventCreate(&self, event: *mut CUevent, flags: c_uint) -> Answer {
        let mut state = self.state();
        let context = self.current(&state)?;
        let interprocess = CUevent_flags::CU_EVENT_INTERPROCESS.0;
        let untimed = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        let lacks_flag = flags & interprocess != 0 && flags & untimed == 0;
        if event.is_null() || flags & !7 != 0 || lacks_flag {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = fresh_handle();
        state.events.insert(
            handle,
            Event {
                context,
                flags,
                version: 0,
                point: None,
                time: None,
            },
        );
        // SAFETY: it isn't null, and the caller gave a place for a handle.
        unsafe { put(event, ptr::without_provenance_mut(handle)) }
    }

    pub(crate) unsafe fn cuEventRecord(&self, event: CUevent, stream: CUstream) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        let context = state.streams.get(&handle).map_or(0, |one| one.context());
        let one = state.event(event)?;
        if one.context != context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let version = one.version + 1;
        let work = Work::Record {
            event: event.addr(),
            version,
        };
        let point = self.enqueue(&mut state, handle, work)?;
        let one = state.event(event)?;
        one.version = version;
        one.point = Some(point);
        one.time = None;
        Ok(())
    }

    pub(crate) unsafe fn cuEventQuery(&self, event: CUevent) -> Answer {
        let mut state = self.state();
        let point = state.event(event)?.point;
        match point {
            Some(point) if !state.is_passed(point) => Err(CUresult::CUDA_ERROR_NOT_READY),
            _ => Ok(()),
        }
    }

    pub(crate) unsafe fn cuEventSynchronize(&self, event: CUevent) -> Answer {
        let mut state = self.state();
        let one = state.event(event)?;
        let context = one.context;
        if let Some(point) = one.point {
            let mut state = self.wait_for(state, &[point]);
            if let Some(device) = state.contexts.get(&context).map(|one| one.device) {
                state.trim_to_thresholds(device);
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn cuEventElapsedTime(
        &self,
        milliseconds: *mut f32,
        start: CUevent,
        end: CUevent,
    ) -> Answer {
        let mut state = self.state();
        let mut time_of = |event| {
            let one = state.event(event)?;
            if !one.has_timing() || one.point.is_none() {
                return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
            }
            one.time.ok_or(CUresult::CUDA_ERROR_NOT_READY)
        };
        let (start, end) = (time_of(start)?, time_of(end)?);
        let between = if end >= start {
            end.duration_since(start).as_secs_f32()
        } else {
            -start.duration_since(end).as_secs_f32()
        };
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(milliseconds, between * 1000.0) }
    }

    pub(crate) unsafe fn cuEventDestroy_v2(&self, event: CUevent) -> Answer {
        self.destroy_event(event)
    }

    pub(crate) unsafe fn cuEventDestroy(&self, event: CUevent) -> Answer {
        self.destroy_event(event)
    }
}
