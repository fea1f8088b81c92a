//! Events.

use core::ptr;

use cumem_sys::{CUevent, CUevent_flags as F, CUresult, CUstream, CUstream_flags};

use super::{KIB, code};
use crate::behaviour::{Check, behaviours, call, holds, refused, same};
use crate::gate::Gate;
use crate::ground::Ground;

const NULL: CUstream = ptr::null_mut();

fn event(g: &Ground<'_>) -> Check<CUevent> {
    Ok(g.event_create(F::CU_EVENT_DEFAULT)?)
}

fn stream(g: &Ground<'_>) -> Check<CUstream> {
    Ok(g.stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)?)
}

behaviours! {
    area "event";

    /// One that was never recorded is ready.
    shared fn one_never_recorded_is_ready(g) {
        let event = event(g)?;
        let ready = call!(g.event_query(event))?;
        call!(g.event_synchronize(event))?;
        call!(g.event_destroy(event))?;
        same(ready, true)?;
    }

    /// Unknown flags are refused.
    shared fn unknown_flags_are_refused(g) {
        refused(g.event_create(F(0x100)), code::INVALID_VALUE)?;
    }

    /// One for other processes must not measure time.
    shared fn one_for_other_processes_measures_no_time(g) {
        refused(g.event_create(F::CU_EVENT_INTERPROCESS), code::INVALID_VALUE)?;
        let flags = F(F::CU_EVENT_INTERPROCESS.0 | F::CU_EVENT_DISABLE_TIMING.0);
        let event = g.event_create(flags)?;
        call!(g.event_destroy(event))?;
    }

    /// It is ready once the stream has passed it.
    shared fn is_ready_once_passed(g) {
        let (event, stream) = (event(g)?, stream(g)?);
        let gate = Gate::close(g, stream)?;
        call!(g.event_record(event, stream))?;
        let before = call!(g.event_query(event))?;
        gate.open();
        call!(g.event_synchronize(event))?;
        let after = call!(g.event_query(event))?;
        call!(g.event_destroy(event))?;
        call!(g.stream_destroy(stream))?;
        same((before, after), (false, true))?;
    }

    /// Recorded again, it stands for the later point.
    shared fn recorded_again_it_is_the_later_point(g) {
        let (event, stream) = (event(g)?, stream(g)?);
        call!(g.event_record(event, stream))?;
        call!(g.event_synchronize(event))?;
        let gate = Gate::close(g, stream)?;
        call!(g.event_record(event, stream))?;
        let again = call!(g.event_query(event))?;
        gate.open();
        call!(g.event_synchronize(event))?;
        call!(g.event_destroy(event))?;
        call!(g.stream_destroy(stream))?;
        same(again, false)?;
    }

    /// Another stream waits for it.
    shared fn another_stream_waits_for_it(g) {
        let (event, first, second) = (event(g)?, stream(g)?, stream(g)?);
        let device = g.mem_alloc(KIB)?;
        let gate = Gate::close(g, first)?;
        call!(g.event_record(event, first))?;
        call!(g.stream_wait_event(second, event))?;
        call!(g.memset_d8_async(device, 1, KIB, second))?;
        let before = call!(g.stream_query(second))?;
        gate.open();
        call!(g.stream_synchronize(second))?;
        let first_done = call!(g.stream_query(first))?;
        call!(g.event_destroy(event))?;
        call!(g.stream_destroy(first))?;
        call!(g.stream_destroy(second))?;
        call!(g.mem_free(device))?;
        same((before, first_done), (false, true))?;
    }

    /// Waiting for one that was never recorded is no wait.
    shared fn waiting_for_one_never_recorded_is_no_wait(g) {
        let (event, stream) = (event(g)?, stream(g)?);
        call!(g.stream_wait_event(stream, event))?;
        call!(g.stream_synchronize(stream))?;
        call!(g.event_destroy(event))?;
        call!(g.stream_destroy(stream))?;
    }

    /// Destroyed before it is passed, it is still waited for.
    shared fn destroyed_it_is_still_waited_for(g) {
        let (event, first, second) = (event(g)?, stream(g)?, stream(g)?);
        let device = g.mem_alloc(KIB)?;
        let gate = Gate::close(g, first)?;
        call!(g.event_record(event, first))?;
        call!(g.stream_wait_event(second, event))?;
        call!(g.event_destroy(event))?;
        call!(g.memset_d8_async(device, 1, KIB, second))?;
        let ready = call!(g.stream_query(second))?;
        gate.open();
        call!(g.stream_synchronize(second))?;
        call!(g.stream_destroy(first))?;
        call!(g.stream_destroy(second))?;
        call!(g.mem_free(device))?;
        same(ready, false)?;
    }

    /// The time between two is not negative, in order.
    shared fn the_time_between_two_is_measured(g) {
        let (start, end) = (event(g)?, event(g)?);
        call!(g.event_record(start, NULL))?;
        call!(g.event_record(end, NULL))?;
        call!(g.event_synchronize(end))?;
        let time = call!(g.event_elapsed_time(start, end))?;
        call!(g.event_destroy(start))?;
        call!(g.event_destroy(end))?;
        holds((0.0..1000.0).contains(&time), "not a short time")?;
    }

    /// Between one that was never recorded and another there is no time.
    shared fn one_never_recorded_has_no_time(g) {
        let (start, end) = (event(g)?, event(g)?);
        call!(g.event_record(start, NULL))?;
        g.ctx_synchronize()?;
        let time = call!(g.event_elapsed_time(start, end));
        call!(g.event_destroy(start))?;
        call!(g.event_destroy(end))?;
        refused(time, code::INVALID_HANDLE)?;
    }

    /// One that measures no time has none.
    shared fn one_without_timing_has_no_time(g) {
        let (start, end) = (event(g)?, g.event_create(F::CU_EVENT_DISABLE_TIMING)?);
        call!(g.event_record(start, NULL))?;
        call!(g.event_record(end, NULL))?;
        g.ctx_synchronize()?;
        let time = call!(g.event_elapsed_time(start, end));
        call!(g.event_destroy(start))?;
        call!(g.event_destroy(end))?;
        refused(time, code::INVALID_HANDLE)?;
    }

    /// One that isn't passed yet has no time yet.
    shared fn one_not_passed_has_no_time_yet(g) {
        let (start, end, stream) = (event(g)?, event(g)?, stream(g)?);
        call!(g.event_record(start, stream))?;
        let gate = Gate::close(g, stream)?;
        call!(g.event_record(end, stream))?;
        let time = call!(g.event_elapsed_time(start, end));
        gate.open();
        call!(g.stream_synchronize(stream))?;
        call!(g.event_destroy(start))?;
        call!(g.event_destroy(end))?;
        call!(g.stream_destroy(stream))?;
        refused(time, CUresult::CUDA_ERROR_NOT_READY)?;
    }

    /// One of another context isn't recorded.
    alone fn one_of_another_context_is_not_recorded(g) {
        let event = event(g)?;
        let flags = cumem_sys::CUctx_flags::CU_CTX_SCHED_AUTO;
        let context = g.ctx_create(flags, g.device())?;
        let stream = stream(g)?;
        let result = call!(g.event_record(event, stream));
        call!(g.ctx_destroy(context))?;
        refused(result, code::INVALID_HANDLE)?;
    }
}
