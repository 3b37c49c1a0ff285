//! The verdicts of a post-mortem of an out-of-memory error. The doc comment of each is the page that
//! `cyclescope explain` prints.

/// Every verdict, by how much it proves.
pub const VERDICTS: &[&str] = &[
    CYCLES,
    KEPT_GRAPHS,
    FRAGMENTATION,
    GROWTH,
    ELSEWHERE,
    BATCH_TOO_BIG,
    UNCLEAR,
];

/// # Out of memory: Garbage in reference cycles
///
/// Reference cycles held so much garbage that the request would have fitted after a collection. The
/// map of the allocator's blocks proves it.
///
/// **Why it happens.** Only the garbage collector frees a cycle. It runs after a number of allocations,
/// and does not know how much device memory the objects hold.
///
/// Instead, break the cycles: the post-mortem contains the leak trace, which names the reference to
/// remove. Until then, collect in time:
///
/// ```python
/// cyclescope.collect_on_pressure(0.9)  # when 90 % of the device is allocated
/// cyclescope.step(every=100)  # or every 100 steps, in the same step on all ranks
/// ```
pub const CYCLES: &str = "cycles";

/// # Out of memory: Autograd graphs that are kept
///
/// One container keeps tensors together with their autograd graphs. If it kept only the last of them,
/// the request would fit. The map of the allocator's blocks proves it.
///
/// **Why it happens.** A loss or an output refers to its graph (`grad_fn`), and the graph to all tensors
/// that were saved for the backward pass.
///
/// ```python
/// losses.append(loss)
/// ```
///
/// Instead, store numbers, or tensors without their graphs; and evaluate without recording graphs:
///
/// ```python
/// losses.append(loss.item())  # or loss.detach()
/// with torch.no_grad():
///     outputs.append(model(batch))
/// ```
pub const KEPT_GRAPHS: &str = "kept-graphs";

/// # Out of memory: Fragmentation
///
/// Enough memory was free for the request, but not in one piece: it lies in gaps between blocks that are
/// in use. The numbers of the allocator prove it.
///
/// **Why it happens.** PyTorch's allocator takes memory from CUDA in segments and divides them. If sizes
/// change from step to step, for example with the length of sequences, gaps remain that fit no later
/// request.
///
/// Instead, let segments grow. Set this before the program starts:
///
/// ```sh
/// export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
/// ```
///
/// If the platform does not support that, set `max_split_size_mb`, and use sizes that do not change from
/// step to step: pad to a few fixed lengths.
pub const FRAGMENTATION: &str = "fragmentation";

/// # Out of memory: Tensors that pile up
///
/// A growth monitor was running and had found a group of tensors that grows with the number of steps. The
/// request might have fitted without it, and nothing else explains the error. The post-mortem names the
/// owner, and the largest group gives the advice.
///
/// **Why it happens.** The program still refers to tensors that it no longer needs, so no collection can
/// free them.
///
/// Instead, follow the advice of the growth report; `cyclescope explain` has a page for each of its
/// patterns, such as `kept-with-graph`.
pub const GROWTH: &str = "growth";

/// # Out of memory: Memory used outside PyTorch's allocator
///
/// The process could take more memory, but the device had none left: other processes, CUDA itself or
/// another library use it.
///
/// **Why it happens.** A second job or a notebook runs on the same device, a previous run has not ended,
/// or a library such as NCCL or cuBLAS has buffers of its own.
///
/// Instead, list the processes with `nvidia-smi` and end those that should not be there, or choose another
/// device with `CUDA_VISIBLE_DEVICES`. If several processes share a device on purpose, limit each with
/// `torch.cuda.set_per_process_memory_fraction`.
pub const ELSEWHERE: &str = "elsewhere";

/// # Out of memory: The request is too big
///
/// The request would not fit even if only the model and the running step were in memory, or it is large
/// and nothing in memory is known to be unneeded.
///
/// **Why it happens.** Activations grow with the batch and with the length of sequences, and an optimizer
/// such as Adam needs twice the memory of the parameters.
///
/// Instead, reduce the memory of one step:
///
/// - a smaller batch, with gradients accumulated over several
/// - checkpointed activations (`torch.utils.checkpoint`)
/// - `bfloat16` (`torch.autocast`)
/// - a sharded model (FSDP)
pub const BATCH_TOO_BIG: &str = "batch-too-big";

/// # Out of memory: No single cause is proven
///
/// The numbers prove none of the other verdicts. The post-mortem lists what is known: free, reserved and
/// allocated memory, its categories, and the owners of the largest tensors. It says which parts were not
/// examined, and why.
///
/// **Why it happens.** Several causes may each hold a part of the memory, or a part could not be examined:
/// during a backward pass, for example, autograd graphs are not read.
///
/// Instead, run the program again with these, which may prove the cause:
///
/// ```python
/// monitor = cyclescope.watch_growth()  # finds what grows; call monitor.step() in each step
/// torch.cuda.memory._record_memory_history()  # then the allocator's snapshot is written too
/// ```
pub const UNCLEAR: &str = "unclear";
