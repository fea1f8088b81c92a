//! The stack of current contexts that every thread has.
//!
//! One fixed array per thread serves all simulated drivers of the process, so that nothing is
//! allocated, and nothing is torn down before the thread's last call, which may come from the
//! destructor of another thread-local value.

use core::cell::RefCell;

use crate::slots;

/// How many contexts can be stacked on one thread, over all simulated drivers.
const DEPTH: usize = 128;

#[derive(Clone, Copy)]
struct Frame {
    instance: u64,
    context: usize,
}

struct Stack {
    frames: [Frame; DEPTH],
    depth: usize,
}

thread_local! {
    static STACK: RefCell<Stack> = const {
        RefCell::new(Stack { frames: [Frame { instance: 0, context: 0 }; DEPTH], depth: 0 })
    };
}

impl Stack {
    fn top(&self, instance: u64) -> Option<usize> {
        self.frames[..self.depth]
            .iter()
            .rposition(|frame| frame.instance == instance)
    }

    fn remove(&mut self, at: usize) -> usize {
        let context = self.frames[at].context;
        self.frames.copy_within(at + 1..self.depth, at);
        self.depth -= 1;
        context
    }
}

/// The context that is current on this thread.
pub(crate) fn current(instance: u64) -> Option<usize> {
    STACK.with_borrow(|stack| stack.top(instance).map(|at| stack.frames[at].context))
}

/// Stacks a context; false if the stack is full.
pub(crate) fn push(instance: u64, context: usize) -> bool {
    STACK.with_borrow_mut(|stack| {
        if stack.depth == DEPTH {
            // What is left of simulated drivers that are gone.
            let mut kept = 0;
            for at in 0..DEPTH {
                if slots::is_live(stack.frames[at].instance) {
                    stack.frames[kept] = stack.frames[at];
                    kept += 1;
                }
            }
            stack.depth = kept;
        }
        if stack.depth == DEPTH {
            return false;
        }
        stack.frames[stack.depth] = Frame { instance, context };
        stack.depth += 1;
        true
    })
}

/// Takes the current context off.
pub(crate) fn pop(instance: u64) -> Option<usize> {
    STACK.with_borrow_mut(|stack| stack.top(instance).map(|at| stack.remove(at)))
}

/// Replaces the current context; null takes it off. False if the stack is full.
pub(crate) fn set(instance: u64, context: usize) -> bool {
    if context == 0 {
        pop(instance);
        return true;
    }
    let replaced = STACK.with_borrow_mut(|stack| {
        stack
            .top(instance)
            .map(|at| stack.frames[at].context = context)
            .is_some()
    });
    replaced || push(instance, context)
}
