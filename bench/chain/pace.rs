//! Sends frames when they are due and keeps all that comes back, with its times. It knows frames by their
//! length and records by a mark; what they say is looked at afterwards, by who started it (paced.py).
//!
//!     pace source=FD sink=FD count=N interval=NS mark=HEX at=N extra=N reply=HEX reply_at=N base=N each=frame|mark
//!          after=NS silence=NS
//!
//! Standard input: `count` frames of equal length. Frame i is due at the start + i * interval. Whatever is due
//! goes, answers or not. In what the sink receives, a frame's length (4 bytes, big-endian) stands `at` bytes
//! into it, and `extra` bytes are not counted in it. To every read that completes a frame, or one with a mark
//! (`each`), it answers `reply` with base + the marks so far (8 bytes, big-endian) at `reply_at`.
//!
//! Standard output: a line of JSON, then arrays of little-endian 64-bit numbers: when each frame went to the
//! kernel (ns after the start); time and length of each read of the source, and of the sink; then what they
//! read. It ends once as many marks as frames have come and nothing more for `after`; before, after `silence`.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd};

const START_IN: i64 = 10_000_000;
const READ: usize = 1 << 18;
const MONOTONIC: i32 = 1;
const PROCESS_CPU: i32 = 2;
const PR_SET_TIMERSLACK: i32 = 29;
const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;

#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

extern "C" {
    fn ppoll(fds: *mut PollFd, count: u64, timeout: *const Timespec, mask: *const u8) -> i32;
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    fn prctl(option: i32, argument: u64, third: u64, fourth: u64, fifth: u64) -> i32;
}

fn clock(which: i32) -> i64 {
    let mut time = Timespec { sec: 0, nsec: 0 };
    unsafe { clock_gettime(which, &mut time) };
    time.sec * 1_000_000_000 + time.nsec
}

/// What a socket said, with the time and length of each read.
struct Heard {
    data: Vec<u8>, // filled up to `end`; written before, so that no page is new when it counts
    end: usize,
    reads: Vec<(i64, usize)>,
    closed: bool,
}

impl Heard {
    fn new(expected: usize) -> Heard {
        Heard { data: vec![1; expected + READ], end: 0, reads: Vec::with_capacity(1 << 16), closed: false }
    }

    fn read(&mut self, socket: &mut TcpStream, began: i64) -> io::Result<bool> {
        if self.data.len() < self.end + READ {
            self.data.resize(2 * self.data.len(), 1);
        }
        match socket.read(&mut self.data[self.end..self.end + READ]) {
            Ok(0) => {
                self.closed = true;
                Ok(false)
            }
            Ok(count) => {
                self.reads.push((clock(MONOTONIC) - began, count));
                self.end += count;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

struct Options(HashMap<String, String>);

impl Options {
    fn number(&self, name: &str) -> i64 {
        self.0[name].parse().expect(name)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let text = &self.0[name];
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect(name)).collect()
    }
}

fn marks(data: &[u8], mark: &[u8]) -> i64 {
    let mut found = 0;
    let mut at = 0;
    while let Some(step) = data[at..].iter().position(|byte| *byte == mark[0]) {
        at += step;
        if data[at..].starts_with(mark) {
            found += 1;
            at += mark.len();
        } else {
            at += 1;
        }
    }
    found
}

fn main() -> io::Result<()> {
    let options = Options(
        std::env::args()
            .skip(1)
            .map(|pair| {
                pair.split_once('=').map(|(key, value)| (key.into(), value.into())).expect("key=value")
            })
            .collect(),
    );
    let count = options.number("count");
    let interval = options.0["interval"].parse::<f64>().expect("interval");
    let (length_at, extra) = (options.number("at") as usize, options.number("extra") as usize);
    let (mark, mut reply) = (options.bytes("mark"), options.bytes("reply"));
    let (reply_at, base) = (options.number("reply_at") as usize, options.number("base"));
    let (after, patience) = (options.number("after"), options.number("silence"));
    let on_marks = options.0["each"] == "mark";
    let mut source = unsafe { TcpStream::from_raw_fd(options.number("source") as i32) };
    let mut sink = unsafe { TcpStream::from_raw_fd(options.number("sink") as i32) };
    source.set_nonblocking(true)?;
    sink.set_nonblocking(true)?;
    let mut frames = Vec::new();
    io::stdin().read_to_end(&mut frames)?;
    let size = frames.len() / count as usize;
    let mut sent_at: Vec<i64> = Vec::with_capacity(count as usize);
    let mut answers = Heard::new(count as usize * 128);
    let mut arrivals = Heard::new(frames.len() + count as usize * 128);
    unsafe { prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) };

    let cpu = clock(PROCESS_CPU);
    let began = clock(MONOTONIC) + START_IN;
    let due = |number: i64| (number as f64 * interval) as i64;
    let (mut sent, mut whole, mut arrived, mut heard) = (0, 0, 0, 0);
    let why = loop {
        let now = clock(MONOTONIC) - began;
        let mut ready = sent_at.len() as i64;
        while ready < count && due(ready) <= now {
            sent_at.push(now);
            ready += 1;
        }
        let wanted = ready as usize * size;
        while sent < wanted {
            match source.write(&frames[sent..wanted]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let done = arrived >= count;
        let end = heard + if done { after } else { patience };
        let wake = if ready < count { due(ready).min(end) } else { end };
        let pause = (wake - (clock(MONOTONIC) - began)).max(0);
        let mut polled = [
            PollFd {
                fd: source.as_raw_fd(),
                events: POLLIN | if sent < wanted { POLLOUT } else { 0 },
                revents: 0,
            },
            PollFd { fd: sink.as_raw_fd(), events: POLLIN, revents: 0 },
        ];
        let timeout = Timespec { sec: pause / 1_000_000_000, nsec: pause % 1_000_000_000 };
        unsafe { ppoll(polled.as_mut_ptr(), 2, &timeout, std::ptr::null()) };
        let before = (answers.end, arrivals.end);
        if polled[0].revents & !POLLOUT != 0 {
            answers.read(&mut source, began)?;
        }
        if polled[1].revents != 0 && arrivals.read(&mut sink, began)? {
            let start = whole;
            while whole + length_at + 4 <= arrivals.end {
                let at = whole + length_at;
                let length = u32::from_be_bytes(arrivals.data[at..at + 4].try_into().unwrap()) as usize;
                if whole + length + extra > arrivals.end {
                    break;
                }
                whole += length + extra;
            }
            let found = marks(&arrivals.data[start..whole], &mark);
            arrived += found;
            if if on_marks { found > 0 } else { whole > start } {
                reply[reply_at..reply_at + 8].copy_from_slice(&(base + arrived).to_be_bytes());
                sink.write_all(&reply)?;
            }
        }
        if answers.closed || arrivals.closed {
            break if answers.closed { "source" } else { "sink" };
        }
        let now = clock(MONOTONIC) - began;
        if before != (answers.end, arrivals.end) {
            heard = now;
        } else if now >= end {
            break if done { "" } else { "silence" };
        }
    };
    let cpu = clock(PROCESS_CPU) - cpu;

    let mut out = io::BufWriter::new(io::stdout().lock());
    let (read, taken) = (answers.reads.len(), arrivals.reads.len());
    writeln!(
        out,
        "{{\"cpu\": {cpu}, \"sent\": {}, \"answers\": {read}, \"arrivals\": {taken}, \"why\": \"{why}\"}}",
        sent_at.len()
    )?;
    for time in &sent_at {
        out.write_all(&time.to_le_bytes())?;
    }
    for (time, length) in answers.reads.iter().chain(&arrivals.reads) {
        out.write_all(&time.to_le_bytes())?;
        out.write_all(&(*length as i64).to_le_bytes())?;
    }
    out.write_all(&answers.data[..answers.end])?;
    out.write_all(&arrivals.data[..arrivals.end])?;
    out.flush()
}
