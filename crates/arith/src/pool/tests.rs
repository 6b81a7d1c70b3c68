use super::{ColumnPieces, Pool};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Which thread ran each task, in the order of the tasks; fails where one ran twice or never.
fn threads_of(pool: &Pool, tasks: usize) -> Vec<ThreadId> {
    let ran = Mutex::new(vec![None; tasks]);
    pool.run(tasks, &|task| {
        let before = ran.lock().unwrap()[task].replace(thread::current().id());
        assert_eq!(before, None, "task {task} ran twice");
    });
    ran.into_inner().unwrap().into_iter().map(|id| id.expect("every task runs")).collect()
}

#[test]
fn every_task_runs_once() {
    for threads in 1..=5 {
        let pool = Pool::new(threads).unwrap();
        let mut tasks_so_far = 0;
        for tasks in [0, 1, 2, 3, 7, 64, 1000] {
            threads_of(&pool, tasks);
            tasks_so_far += tasks;
            let ran = pool.tasks_by_thread();
            assert_eq!(ran.len(), threads);
            assert_eq!(ran.iter().sum::<u64>(), tasks_so_far as u64, "{tasks} tasks on {threads} threads");
        }
    }
}

#[test]
fn every_thread_takes_part() {
    let pool = Pool::new(3).unwrap();
    // Each task waits until all three are under way, so no thread can take two.
    let arrived = Barrier::new(3);
    let ran = Mutex::new(Vec::new());
    pool.run(3, &|_| {
        arrived.wait();
        ran.lock().unwrap().push(thread::current().id());
    });
    let mut ran = ran.into_inner().unwrap();
    ran.sort_by_key(|id| format!("{id:?}"));
    ran.dedup();
    assert_eq!(ran.len(), 3);
    assert_eq!(pool.tasks_by_thread(), [1, 1, 1]);
}

#[test]
fn threads_help_each_other() {
    let pool = Pool::new(2).unwrap();
    // Shares are 0..4 and 4..8. Task 0 ends only after all others have, so the other thread must run 1..4 as well.
    let finished = AtomicUsize::new(0);
    pool.run(8, &|task| {
        while task == 0 && finished.load(Ordering::Acquire) < 7 {
            thread::yield_now();
        }
        finished.fetch_add(1, Ordering::Release);
    });
    assert_eq!(finished.into_inner(), 8);
    let mut ran = pool.tasks_by_thread();
    ran.sort_unstable();
    assert_eq!(ran, [1, 7]);
}

#[test]
fn partition_does_not_overflow() {
    let share = |thread| super::signal::share(usize::MAX, 512, thread);
    assert_eq!(share(0).start, 0);
    assert_eq!(share(511).end, usize::MAX);
    for thread in 1..512 {
        assert_eq!(share(thread - 1).end, share(thread).start);
    }
}

#[test]
fn many_short_runs_with_pauses() {
    // More threads than cores, and pauses long enough to put workers to sleep: a lost wake-up would hang here.
    for threads in [2, 3, 9] {
        let pool = Pool::new(threads).unwrap();
        let count = AtomicUsize::new(0);
        for round in 0..3000 {
            pool.run(round % 11, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            if round % 500 == 499 {
                thread::sleep(Duration::from_millis(3));
            }
        }
        assert_eq!(count.into_inner(), (0..3000).map(|round| round % 11).sum::<usize>());
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(3).unwrap();
    for bad in [0, 5, 8] {
        let finished = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(9, &|task| {
                assert!(task != bad, "task {bad} fails");
                finished.fetch_add(1, Ordering::Relaxed);
            });
        }));
        let payload = result.expect_err("the panic goes on");
        assert_eq!(payload.downcast_ref::<String>(), Some(&format!("task {bad} fails")));
        assert!(finished.into_inner() < 9, "a thread that panicked takes no more tasks");
        assert_eq!(threads_of(&pool, 9).len(), 9);
    }
}

#[test]
fn a_run_inside_a_task_stays_on_its_thread() {
    let pool = Pool::new(3).unwrap();
    let count = AtomicUsize::new(0);
    pool.run(6, &|_| {
        let outer = thread::current().id();
        assert!(threads_of(&pool, 4).iter().all(|inner| *inner == outer));
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(count.into_inner(), 6);
}

#[test]
fn callers_on_several_threads_share_a_pool() {
    let pool = Pool::new(3).unwrap();
    let count = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    pool.run(7, &|_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 4 * 500 * 7);
}

#[test]
fn dropping_a_pool_ends_its_threads() {
    for _ in 0..50 {
        let pool = Pool::new(4).unwrap();
        let signal = std::sync::Arc::downgrade(&pool.signal);
        pool.run(4, &|_| ());
        drop(pool);
        assert_eq!(signal.strong_count(), 0, "every worker has let go");
    }
}

#[test]
fn too_large_a_pool_is_refused() {
    assert!(Pool::new(Pool::MAX_THREADS + 1).is_err());
    assert!(Pool::new(usize::MAX).is_err());
}

#[test]
fn pieces_cover_everything_once() {
    let pool = Pool::new(3).unwrap();
    for length in [0, 1, 5, 16, 100] {
        for piece in [1, 3, 16, 200] {
            let mut all = vec![0; length];
            pool.run_pieces(&mut all, piece, &|index, part| {
                for (k, element) in part.iter_mut().enumerate() {
                    *element += index * piece + k + 1;
                }
            });
            assert!(
                all.iter().enumerate().all(|(k, element)| *element == k + 1),
                "{length} in pieces of {piece}"
            );
        }
    }
}

/// `all` in rows of `width`, cut into ranges of `piece` columns.
fn pieces(all: &mut [usize], width: usize, piece: usize) -> ColumnPieces<'_, usize> {
    ColumnPieces { all, width, piece }
}

#[test]
fn columns_cover_everything_once() {
    let pool = Pool::new(3).unwrap();
    for (rows, width) in [(0, 5), (1, 1), (3, 16), (4, 37)] {
        for piece in [1, 5, 16, 64] {
            let mut all = vec![0; rows * width];
            let mut others = vec![0; rows * 11];
            pool.run_columns(
                [pieces(&mut all, width, piece), pieces(&mut others, 11, 4)],
                &|which, mut columns| {
                    for row in 0..columns.rows() {
                        let (first, count) = (columns.first(), columns.count());
                        let part = columns.row(row);
                        assert_eq!(part.len(), count);
                        for (k, element) in part.iter_mut().enumerate() {
                            *element += which * 10_000 + row * [width, 11][which] + first + k + 1;
                        }
                    }
                },
            );
            for (which, all) in [all, others].iter().enumerate() {
                assert!(
                    all.iter().enumerate().all(|(k, element)| *element == which * 10_000 + k + 1),
                    "matrix {which} of {rows} x {width} by {piece}"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "row 2 of 2")]
fn a_row_that_is_not_there() {
    let pool = Pool::new(1).unwrap();
    pool.run_columns([pieces(&mut [0; 8], 4, 2)], &|_, mut columns| columns.row(2).fill(1));
}

#[test]
#[should_panic(expected = "7 elements in rows of 4")]
fn columns_of_ragged_rows() {
    Pool::new(1).unwrap().run_columns([pieces(&mut [0; 7], 4, 2)], &|_, _| ());
}
