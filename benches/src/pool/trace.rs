//! Recorded-looking sequences of allocations, made up with the shape of two programs.

use std::fmt::Write as _;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// One step of one thread.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    Take { block: u32, size: usize },
    Give { block: u32 },
}

/// What each thread does. A thread that gives a block which another takes waits for it; as
/// generated, such waits never go round in a circle.
pub(crate) struct Trace {
    pub(crate) name: &'static str,
    pub(crate) threads: Vec<Vec<Op>>,
    pub(crate) blocks: usize,
    /// The most bytes live at once in the order of generation.
    pub(crate) peak_bytes: usize,
    order: Vec<(usize, Op)>,
}

impl Trace {
    /// The trace of this name, each thread's work repeated `times` over.
    pub(crate) fn named(name: &str, threads: usize, times: usize) -> Option<Self> {
        let threads = threads.max(1);
        match name {
            "training" => Some(training(threads, times)),
            "join" => Some(join(threads, times)),
            _ => None,
        }
    }

    pub(crate) fn operations(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (thread, op) in &self.order {
            let _ = match op {
                Op::Take { block, size } => writeln!(text, "{thread} + {block} {size}"),
                Op::Give { block } => writeln!(text, "{thread} - {block}"),
            };
        }
        text
    }
}

struct Writer {
    trace: Trace,
    sizes: Vec<usize>,
    live: usize,
    random: u64,
}

impl Writer {
    fn new(name: &'static str, threads: usize) -> Self {
        Self {
            trace: Trace {
                name,
                threads: vec![Vec::new(); threads],
                blocks: 0,
                peak_bytes: 0,
                order: Vec::new(),
            },
            sizes: Vec::new(),
            live: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn op(&mut self, thread: usize, op: Op) {
        self.trace.threads[thread].push(op);
        self.trace.order.push((thread, op));
    }

    fn take(&mut self, thread: usize, size: usize) -> u32 {
        let block = self.sizes.len() as u32;
        self.sizes.push(size);
        self.live += size;
        self.trace.peak_bytes = self.trace.peak_bytes.max(self.live);
        self.op(thread, Op::Take { block, size });
        block
    }

    fn give(&mut self, thread: usize, block: u32) {
        self.live -= self.sizes[block as usize];
        self.op(thread, Op::Give { block });
    }

    /// Takes and gives at once.
    fn scratch(&mut self, thread: usize, size: usize) {
        let block = self.take(thread, size);
        self.give(thread, block);
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % bound
    }

    /// Between two sizes, each doubling as likely as the other.
    fn between(&mut self, low: usize, high: usize) -> usize {
        let doublings = (high / low).ilog2() as usize;
        let base = low << self.below(doublings);
        base + self.below(base)
    }

    fn finish(mut self) -> Trace {
        assert_eq!(self.live, 0, "a trace ends with nothing live");
        self.trace.blocks = self.sizes.len();
        self.trace
    }
}

/// Training steps: each thread is a worker with layers. Forward, activations pile up, with
/// workspaces in between; backward, gradients come and go while the activations are given back, the
/// newest first. Every layer has its own sizes, the same ones each step. Every fourth activation is given
/// back by the neighbour, as by a thread that runs the backward pass.
fn training(threads: usize, steps: usize) -> Trace {
    const LAYERS: usize = 24;
    let mut writer = Writer::new("training", threads);
    let layers: Vec<[usize; 6]> = (0..LAYERS)
        .map(|_| {
            [
                writer.between(4 * KIB, 64 * KIB),
                writer.between(64 * KIB, MIB),
                writer.between(256 * KIB, 2 * MIB),
                writer.between(MIB, 8 * MIB),
                writer.between(MIB, 32 * MIB),
                writer.between(512, 4 * KIB),
            ]
        })
        .collect();
    for _ in 0..steps * 4 {
        let mut activations: Vec<Vec<u32>> = vec![Vec::new(); threads];
        for layer in &layers {
            for (thread, own) in activations.iter_mut().enumerate() {
                for (position, size) in layer.iter().enumerate() {
                    own.push(writer.take(thread, *size));
                    if position % 2 == 0 {
                        writer.scratch(thread, layer[3] / 2 + 1);
                        writer.scratch(thread, layer[1]);
                    }
                }
                for _ in 0..8 {
                    writer.scratch(thread, layer[5]);
                    writer.scratch(thread, layer[0]);
                }
            }
        }
        for layer in layers.iter().rev() {
            for (thread, own) in activations.iter_mut().enumerate() {
                let gradient = writer.take(thread, layer[3]);
                let small = writer.take(thread, layer[2]);
                for position in 0..layer.len() {
                    let Some(block) = own.pop() else { break };
                    let by = match position % 4 {
                        3 => (thread + 1) % threads,
                        _ => thread,
                    };
                    writer.give(by, block);
                    writer.scratch(thread, layer[0]);
                }
                writer.give(thread, small);
                writer.give(thread, gradient);
            }
        }
    }
    writer.finish()
}

/// A partitioned join of tables: for each partition, columns, a hash table and gather maps, much small
/// scratch between them, and result columns that the next thread gives back two partitions later.
fn join(threads: usize, times: usize) -> Trace {
    let mut writer = Writer::new("join", threads);
    let mut results: Vec<Vec<Vec<u32>>> = vec![Vec::new(); threads];
    for _ in 0..times * 24 {
        for (thread, given) in results.iter_mut().enumerate() {
            let rows = writer.between(64 * KIB, MIB);
            let build: Vec<u32> = [8, 4, 1]
                .map(|width| writer.take(thread, rows * width))
                .into();
            let table = writer.take(thread, (rows * 2).next_power_of_two() * 8);
            for _ in 0..40 {
                let size = writer.between(256, 64 * KIB);
                writer.scratch(thread, size);
            }
            let probe: Vec<u32> = [8, 8, 4, 1]
                .map(|width| writer.take(thread, rows * width))
                .into();
            let maps: Vec<u32> = [4, 4].map(|width| writer.take(thread, rows * width)).into();
            for _ in 0..40 {
                let size = writer.between(256, 4 * KIB);
                writer.scratch(thread, size);
            }
            let out = rows / 2 + writer.below(rows);
            given.push(
                [8, 8, 4, 4]
                    .map(|width| writer.take(thread, out * width))
                    .into(),
            );
            for block in maps.into_iter().chain(probe).chain([table]).chain(build) {
                writer.give(thread, block);
            }
            if given.len() > 2 {
                for block in given.remove(0) {
                    writer.give((thread + 1) % threads, block);
                }
            }
        }
    }
    for (thread, given) in results.into_iter().enumerate() {
        for block in given.into_iter().flatten() {
            writer.give((thread + 1) % threads, block);
        }
    }
    writer.finish()
}
