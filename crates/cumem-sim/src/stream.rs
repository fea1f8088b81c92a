//! Streams: work in order, done by a worker thread each.
//!
//! Work names the work of other streams that it comes after; that is always work that was put in
//! earlier, so the streams can't wait for each other in a circle.

use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use cumem_sys::{
    CUcontext, CUdeviceptr, CUevent, CUhostFn, CUmemAttach_flags, CUresult, CUstream,
    CUstream_flags,
};

use crate::books::Kind;
use crate::context::as_handle;
use crate::instance::{Answer, Instance, State, fresh_handle, put};
use crate::memory::Allocation;
use crate::memory::copy::Transfer;

/// The handle that means the null stream, explicitly.
const LEGACY: usize = 1;
/// The handle that means the calling thread's own stream.
const PER_THREAD: usize = 2;

/// A point in a stream: its handle, and how much work comes up to it.
pub(crate) type Point = (usize, u64);

#[derive(Debug)]
pub(crate) struct Stream {
    context: usize,
    flags: CUstream_flags,
    is_null: bool,
    queue: VecDeque<Item>,
    issued: u64,
    done: u64,
    running: bool,
    /// Running a function of the program's.
    calling: bool,
    /// Destroyed; it goes when its work is done.
    retired: bool,
    has_worker: bool,
}

#[derive(Debug)]
struct Item {
    /// Later work has a higher number, whichever stream it is in.
    number: u64,
    after: Vec<Point>,
    work: Work,
}

/// A piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Only the order counts.
    Nothing,
    Transfer(Transfer),
    Call(HostCall),
    /// Notes the time in an event, unless it was recorded again since.
    Record {
        event: usize,
        version: u64,
    },
    /// Gives a block back to its pool.
    GiveToPool {
        pool: usize,
        block: u64,
    },
    /// Frees memory that isn't of a pool.
    Free(Box<Allocation>),
}

/// A function of the program's.
#[derive(Debug)]
pub(crate) struct HostCall {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: who puts a function into a stream promises that it may be called with its data on any
// thread.
unsafe impl Send for HostCall {}

thread_local! {
    static ON_WORKER: Cell<bool> = const { Cell::new(false) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is a stream's worker.
pub(crate) fn on_worker() -> bool {
    ON_WORKER.get()
}

/// Whether this thread is in a function that a stream called.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

impl Work {
    /// Does what needs no lock.
    fn run(&mut self) {
        match self {
            Self::Transfer(transfer) => transfer.run(),
            Self::Call(call) => {
                IN_CALLBACK.set(true);
                // SAFETY: the program promised that the function may be called once the stream
                // comes to it.
                unsafe { (call.function)(call.data) };
                IN_CALLBACK.set(false);
            }
            Self::Nothing | Self::Record { .. } | Self::GiveToPool { .. } | Self::Free(_) => {}
        }
    }
}

impl Stream {
    pub(crate) fn new(context: usize, flags: CUstream_flags) -> Self {
        Self {
            context,
            flags,
            is_null: false,
            queue: VecDeque::new(),
            issued: 0,
            done: 0,
            running: false,
            calling: false,
            retired: false,
            has_worker: false,
        }
    }

    pub(crate) fn null(context: usize) -> Self {
        Self {
            is_null: true,
            ..Self::new(context, CUstream_flags::CU_STREAM_DEFAULT)
        }
    }

    pub(crate) fn context(&self) -> usize {
        self.context
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    fn is_idle(&self) -> bool {
        self.done == self.issued
    }

    /// Whether it waits for the null stream, and the null stream for it.
    fn is_blocking(&self) -> bool {
        !self.is_null && self.flags.0 & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0
    }

    /// Drops the work that was not begun.
    pub(crate) fn abandon(&mut self) {
        self.done += self.queue.len() as u64;
        self.queue.clear();
    }
}

impl State {
    /// The stream that a handle means.
    pub(crate) fn stream(&mut self, current: usize, stream: CUstream) -> Answer<usize> {
        match stream.addr() {
            0 | LEGACY => Ok(self.context(current)?.null_stream),
            PER_THREAD => {
                let thread = std::thread::current().id();
                let context = self
                    .contexts
                    .get_mut(&current)
                    .ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
                Ok(*context.thread_streams.entry(thread).or_insert_with(|| {
                    let handle = fresh_handle();
                    let flags = CUstream_flags::CU_STREAM_DEFAULT;
                    self.streams.insert(handle, Stream::new(current, flags));
                    handle
                }))
            }
            handle => match self.streams.get(&handle) {
                Some(stream) if !stream.retired && !stream.is_null => Ok(handle),
                _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
            },
        }
    }

    /// The end of a stream, as far as it is filled now.
    pub(crate) fn end_of(&self, stream: usize) -> Point {
        (
            stream,
            self.streams.get(&stream).map_or(0, |stream| stream.issued),
        )
    }

    /// The ends of the streams that have work.
    pub(crate) fn ends_of(&self, chosen: impl Fn(&Stream) -> bool) -> Vec<Point> {
        self.streams
            .iter()
            .filter(|(_, stream)| !stream.is_idle() && chosen(stream))
            .map(|(&handle, stream)| (handle, stream.issued))
            .collect()
    }

    /// The ends of the streams of a context that have work.
    pub(crate) fn ends_of_context(&self, context: usize) -> Vec<Point> {
        self.ends_of(|stream| stream.context == context)
    }

    /// The ends of the streams of a device that have work.
    pub(crate) fn ends_of_device(&self, device: c_int) -> Vec<Point> {
        self.ends_of(|stream| {
            self.contexts
                .get(&stream.context)
                .is_some_and(|context| context.device == device)
        })
    }

    pub(crate) fn is_passed(&self, (stream, count): Point) -> bool {
        self.streams
            .get(&stream)
            .is_none_or(|stream| stream.done >= count)
    }

    /// What new work in a stream comes after, besides the stream's own work.
    fn order_of(&self, stream: usize) -> Vec<Point> {
        let Some(one) = self.streams.get(&stream) else {
            return Vec::new();
        };
        if one.is_null {
            self.ends_of(|other| other.context == one.context && other.is_blocking())
        } else if one.is_blocking() {
            let context = one.context;
            self.ends_of(|other| other.context == context && other.is_null)
        } else {
            Vec::new()
        }
    }

    /// Whether new work in a stream could begin at once.
    fn is_clear(&self, stream: usize) -> bool {
        self.holds == 0
            && self.streams.get(&stream).is_none_or(Stream::is_idle)
            && self.order_of(stream).is_empty()
    }

    /// Whether a stream may call a function of the program's. The real driver has one thread for the
    /// functions of a context's streams, which takes them in the order in which they are due.
    fn may_call(&self, stream: &Stream, number: u64) -> bool {
        let is_earlier = |item: &Item| {
            matches!(item.work, Work::Call(_))
                && item.number < number
                && item.after.iter().all(|&point| self.is_passed(point))
        };
        !self.streams.values().any(|other| {
            other.context == stream.context
                && (other.calling || !other.running && other.queue.front().is_some_and(is_earlier))
        })
    }

    /// The next piece of work of a stream, if it may begin.
    fn next(&mut self, handle: usize) -> Option<Work> {
        if self.holds > 0 {
            return None;
        }
        let stream = self.streams.get(&handle)?;
        let item = stream.queue.front()?;
        let is_call = matches!(item.work, Work::Call(_));
        if is_call && !self.may_call(stream, item.number) {
            return None;
        }
        if !item.after.iter().all(|&point| self.is_passed(point)) {
            return None;
        }
        let stream = self.streams.get_mut(&handle)?;
        let work = stream.queue.pop_front()?.work;
        stream.running = true;
        stream.calling = is_call;
        Some(work)
    }

    /// Does what a piece of work leaves to be done under the lock.
    fn finish(&mut self, handle: usize, work: Work) {
        match work {
            Work::Record { event, version } => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.pass(version, Instant::now());
                }
            }
            Work::GiveToPool { pool, block } => self.give_to_pool(pool, block),
            Work::Free(allocation) => self.give_back(&allocation),
            Work::Nothing | Work::Transfer(_) | Work::Call(_) => {}
        }
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.running = false;
            stream.calling = false;
            stream.done += 1;
        }
        self.guard_managed();
    }
}

impl Instance {
    /// Puts work into a stream.
    pub(crate) fn enqueue(&self, state: &mut State, handle: usize, work: Work) -> Answer<Point> {
        let after = state.order_of(handle);
        self.enqueue_after(state, handle, after, work)
    }

    fn enqueue_after(
        &self,
        state: &mut State,
        handle: usize,
        after: Vec<Point>,
        work: Work,
    ) -> Answer<Point> {
        let stream = state
            .streams
            .get_mut(&handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if !stream.has_worker {
            let me = self.me().ok_or(CUresult::CUDA_ERROR_DEINITIALIZED)?;
            std::thread::Builder::new()
                .name("cumem-sim stream".to_owned())
                .spawn(move || me.work_on(handle))
                .map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
            stream.has_worker = true;
        }
        state.work_count += 1;
        stream.queue.push_back(Item {
            number: state.work_count,
            after,
            work,
        });
        stream.issued += 1;
        let point = (handle, stream.issued);
        state.guard_managed();
        self.progress.notify_all();
        Ok(point)
    }

    /// Does work in a stream and returns when it is done.
    pub(crate) fn run_now<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        handle: usize,
        mut work: Work,
    ) -> Answer {
        if state.is_clear(handle) {
            drop(state);
            work.run();
            self.state().finish_outside(work);
        } else {
            let point = self.enqueue(&mut state, handle, work)?;
            drop(self.wait_for(state, &[point]));
        }
        Ok(())
    }

    /// Does work in a stream: at once if nothing comes before it, else when its turn comes.
    pub(crate) fn run_soon<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        handle: usize,
        work: Work,
    ) -> Answer {
        if state.is_clear(handle) {
            self.run_now(state, handle, work)
        } else {
            self.enqueue(&mut state, handle, work).map(|_| ())
        }
    }

    /// Waits until all these points are passed.
    pub(crate) fn wait_for<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        points: &[Point],
    ) -> MutexGuard<'a, State> {
        while !state.ending && !points.iter().all(|&point| state.is_passed(point)) {
            state = self.wait(state);
        }
        state
    }

    /// A stream's worker.
    fn work_on(self: Arc<Self>, handle: usize) {
        ON_WORKER.set(true);
        let mut state = self.state();
        loop {
            if state.ending {
                return;
            }
            if let Some(mut work) = state.next(handle) {
                drop(state);
                work.run();
                state = self.state();
                state.finish(handle, work);
                self.progress.notify_all();
                continue;
            }
            match state.streams.get(&handle) {
                None => return,
                Some(stream) if stream.retired && stream.is_idle() => {
                    state.streams.remove(&handle);
                    self.progress.notify_all();
                    return;
                }
                Some(_) => state = self.wait(state),
            }
        }
    }

    fn make_stream(&self, stream: *mut CUstream, flags: c_uint) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        if stream.is_null() || flags & !CUstream_flags::CU_STREAM_NON_BLOCKING.0 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = fresh_handle();
        state
            .streams
            .insert(handle, Stream::new(current, CUstream_flags(flags)));
        // SAFETY: it isn't null, and the caller gave a place for a handle.
        unsafe { put(stream, ptr::without_provenance_mut(handle)) }
    }

    /// The stream that a handle means, for a call that needs a current context only if the handle
    /// doesn't say which context.
    pub(crate) fn find_stream(&self, state: &mut State, stream: CUstream) -> Answer<usize> {
        let current = if stream.addr() > PER_THREAD {
            0
        } else {
            self.current(state)?
        };
        state.stream(current, stream)
    }

    fn destroy_stream(&self, stream: CUstream) -> Answer {
        let mut state = self.state();
        if stream.addr() <= PER_THREAD {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let handle = state.stream(0, stream)?;
        if let Some(stream) = state.streams.get_mut(&handle) {
            if stream.is_idle() {
                state.streams.remove(&handle);
            } else {
                stream.retired = true;
            }
        }
        self.progress.notify_all();
        Ok(())
    }
}

impl State {
    /// As `finish`, for work that never was in a stream.
    fn finish_outside(&mut self, work: Work) {
        self.finish(0, work);
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuStreamCreate(&self, stream: *mut CUstream, flags: c_uint) -> Answer {
        self.make_stream(stream, flags)
    }

    pub(crate) unsafe fn cuStreamCreateWithPriority(
        &self,
        stream: *mut CUstream,
        flags: c_uint,
        _priority: c_int,
    ) -> Answer {
        self.make_stream(stream, flags)
    }

    pub(crate) unsafe fn cuStreamDestroy_v2(&self, stream: CUstream) -> Answer {
        self.destroy_stream(stream)
    }

    pub(crate) unsafe fn cuStreamDestroy(&self, stream: CUstream) -> Answer {
        self.destroy_stream(stream)
    }

    pub(crate) unsafe fn cuStreamQuery(&self, stream: CUstream) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        let ready = state.is_passed(state.end_of(handle))
            && state
                .order_of(handle)
                .into_iter()
                .all(|point| !state.streams[&handle].is_null || state.is_passed(point));
        if ready {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_NOT_READY)
        }
    }

    pub(crate) unsafe fn cuStreamSynchronize(&self, stream: CUstream) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        let mut points = vec![state.end_of(handle)];
        if state.streams.get(&handle).is_some_and(|one| one.is_null) {
            points.extend(state.order_of(handle));
        }
        let context = state.streams.get(&handle).map(Stream::context);
        let mut state = self.wait_for(state, &points);
        if let Some(device) = context
            .and_then(|context| state.contexts.get(&context))
            .map(|context| context.device)
        {
            state.trim_to_thresholds(device);
        }
        Ok(())
    }

    pub(crate) unsafe fn cuStreamWaitEvent(
        &self,
        stream: CUstream,
        event: CUevent,
        flags: c_uint,
    ) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        if flags & !1 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let point = state.event(event)?.point();
        let mut after = state.order_of(handle);
        after.extend(point);
        self.enqueue_after(&mut state, handle, after, Work::Nothing)?;
        Ok(())
    }

    pub(crate) unsafe fn cuStreamGetCtx(
        &self,
        stream: CUstream,
        context: *mut CUcontext,
    ) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        let owner = state.streams.get(&handle).map_or(0, Stream::context);
        // SAFETY: the caller gave a place for a handle, or null.
        unsafe { put(context, as_handle(owner)) }
    }

    pub(crate) unsafe fn cuStreamAttachMemAsync(
        &self,
        stream: CUstream,
        pointer: CUdeviceptr,
        length: usize,
        flags: c_uint,
    ) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        let (_, allocation) = state
            .find(pointer)
            .filter(|&(base, one)| {
                one.kind == Kind::Managed && base == pointer && (length == 0 || length == one.bytes)
            })
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let single = CUmemAttach_flags::CU_MEM_ATTACH_SINGLE.0;
        let known = [
            CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0,
            CUmemAttach_flags::CU_MEM_ATTACH_HOST.0,
            single,
        ];
        if !known.contains(&flags) || (flags == single && stream.addr() <= PER_THREAD) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        debug_assert!(allocation.bytes > 0);
        self.enqueue(&mut state, handle, Work::Nothing)?;
        Ok(())
    }

    pub(crate) unsafe fn cuLaunchHostFunc(
        &self,
        stream: CUstream,
        function: CUhostFn,
        data: *mut c_void,
    ) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let call = Work::Call(HostCall { function, data });
        self.enqueue(&mut state, handle, call)?;
        Ok(())
    }
}
