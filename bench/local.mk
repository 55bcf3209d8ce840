# SPDX-License-Identifier: Apache-2.0
# Measurements are built by `make bench`, never run by `make check`.
bench_programs = %D%/model %D%/generate %D%/kern %D%/tasks
%C%_kern_SOURCES = %D%/kern.c %D%/probe.h
%C%_kern_CFLAGS = $(KERN_CFLAGS)
%C%_kern_LDADD = $(kern_libs)
%C%_tasks_SOURCES = %D%/tasks.c
%C%_tasks_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_tasks_LDADD = $(sched_libs)
%C%_model_SOURCES = %D%/model.c %D%/model.h %D%/cores.h \
	%D%/probe.h %D%/check.h
%C%_model_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_model_LDADD = $(weft_libs)
%C%_generate_SOURCES = %D%/generate.c %D%/model.h %D%/check.h
%C%_generate_LDADD = $(weft_libs)
bench_programs += %D%/layer
%C%_layer_SOURCES = %D%/layer.c %D%/probe.h
%C%_layer_CFLAGS = $(KERN_CFLAGS)
%C%_layer_LDADD = $(kern_libs)
bench_programs += %D%/advantages
%C%_advantages_SOURCES = %D%/advantages.c %D%/check.h
%C%_advantages_CFLAGS = $(KERN_CFLAGS)
%C%_advantages_LDADD = $(kern_libs)
bench_programs += %D%/layouts
%C%_layouts_SOURCES = %D%/layouts.c %D%/check.h
%C%_layouts_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_layouts_LDADD = $(weft_libs)
EXTRA_DIST += %D%/layouts.sh
bench_programs += %D%/schedule
EXTRA_DIST += %D%/schedule_cpsat.py
%C%_schedule_SOURCES = %D%/schedule.c
%C%_schedule_LDADD = $(schedule_libs)
bench_programs += %D%/record
%C%_record_SOURCES = %D%/record.c %D%/made.h %D%/check.h
%C%_record_LDADD = $(weft_libs)
bench_programs += %D%/emulate
%C%_emulate_SOURCES = %D%/emulate.c %D%/emulated.h %D%/check.h
%C%_emulate_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_emulate_LDADD = $(weft_libs)
EXTRA_DIST += %D%/gpu.c %D%/card.h %D%/gpu_decode.h \
	%D%/gpu_model.h %D%/gpu.sh %D%/gpu_torch.py \
	%D%/gpu_logprobs.py
if WEFT_HAVE_CUDA
bench_programs += %D%/gpu
%C%_gpu_SOURCES = %D%/gpu.c %D%/card.h %D%/gpu_decode.h %D%/gpu_model.h
%C%_gpu_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CFLAGS)
%C%_gpu_LDADD = $(kern_libs)
bench_gpu = %D%/gpu
endif
EXTRA_DIST += %D%/llama.py
# A GPU, against its own probes and beside PyTorch. Its time is bounded, with
# that of the build.
bench-gpu:
	@begun=`date +%s` && $(MAKE) $(bench_gpu) weft$(EXEEXT) && \
	$(AM_TESTS_ENVIRONMENT) WEFT_BENCH_BEGUN=$$begun \
	    $(SHELL) $(srcdir)/bench/gpu.sh
# The last samples of generation, with fusion and without.
EXTRA_DIST += %D%/tail.sh
bench_programs += %D%/tail_emulated
%C%_tail_emulated_SOURCES = %D%/tail_emulated.c %D%/emulated.h %D%/hoppers.h %D%/made.h \
	%D%/check.h
%C%_tail_emulated_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_tail_emulated_LDADD = $(weft_libs)
bench-tail-emulated: %D%/tail_emulated
	%D%/tail_emulated
bench-tail: weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/tail.sh $(TAIL)
bench_programs += %D%/papers
%C%_papers_SOURCES = %D%/papers.c %D%/rows.h %D%/median.h %D%/real_layouts.h \
	%D%/real.h %D%/made.h %D%/check.h
%C%_papers_LDADD = $(weft_libs)
bench_programs += %D%/papers_real
%C%_papers_real_SOURCES = %D%/papers_real.c %D%/rows.h %D%/real_layouts.h \
	%D%/real.h %D%/made.h %D%/check.h
%C%_papers_real_LDADD = $(weft_libs)
bench_programs += %D%/papers_search
%C%_papers_search_SOURCES = %D%/papers_search.c %D%/rows.h %D%/opened.h %D%/check.h
%C%_papers_search_LDADD = $(weft_libs)
bench_programs += %D%/papers_flexrlhf
%C%_papers_flexrlhf_SOURCES = %D%/papers_flexrlhf.c %D%/flexrlhf.h %D%/rows.h %D%/median.h \
	%D%/made.h %D%/check.h
%C%_papers_flexrlhf_LDADD = $(weft_libs)
EXTRA_PROGRAMS += $(bench_programs)
CLEANFILES += $(bench_programs)
bench: $(bench_programs)
# What layouts cost: all tables.
bench-layouts: %D%/layouts %D%/model weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/layouts.sh
# The search for fused pipeline schedules: all tables.
bench-schedule: %D%/schedule
	%D%/schedule
# Generation: prefixes shared or not, and lengths with a long tail.
bench-generate: %D%/generate
	%D%/generate
# What recordings cost.
bench-record: %D%/record
	%D%/record
# Simulations: what they cost, and beside executed tasks that sleep.
bench-simulate: %D%/record %D%/emulate
	%D%/record --simulate $(clusters)/real_h100.yaml
	%D%/emulate $(srcdir)/examples/quickstart/ppo.yaml rollout.prompts=8 \
	    rollout.max_new_tokens=16
# What training as samples complete gains, simulated and on emulated devices.
bench-completed: %D%/emulate
	for words in algorithm=remax \
	    "algorithm=reinforce_pp ppo.whiten_advantages=mini_batch"; do \
	    echo "$$words"; \
	    %D%/emulate --completed \
	        $(srcdir)/examples/quickstart/remax.yaml $$words \
	        rollout.prompts=16 rollout.max_new_tokens=24 \
	        rollout.chunk_tokens=4 rollout.slots=2 ppo.mini_batches=8 \
	        || exit 1; \
	done
# Devices of two speeds, simulated and emulated.
bench-speeds: %D%/emulate
	%D%/emulate --speeds $(srcdir)/examples/quickstart/ppo.yaml \
	    rollout.prompts=24 rollout.max_new_tokens=16 ppo.mini_batches=1
# Predicted beside measured times: of emulated devices, then of this machine.
bench-trust-emulated: %D%/emulate
	%D%/emulate --layouts $(srcdir)/examples/quickstart/ppo.yaml \
	    rollout.prompts=8 rollout.max_new_tokens=16
bench_programs += %D%/speed
%C%_speed_SOURCES = %D%/speed.c %D%/median.h %D%/probe.h
%C%_speed_CFLAGS = $(KERN_CFLAGS)
%C%_speed_LDADD = $(kern_libs)
EXTRA_DIST += %D%/trust.sh
bench-trust: bench-trust-emulated bench-trust-here
bench-trust-here: %D%/speed weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/trust.sh $(TRUST)
# The plan that is found on this machine beside those with names.
EXTRA_DIST += %D%/auto.sh
bench-auto: weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/auto.sh $(AUTO)
EXTRA_DIST += %D%/again.sh
# What planning again gains where lengths drift, simulated; AGAIN: its options.
bench-again: weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/again.sh $(AGAIN)
# A step of GRPO beside TRL's.
EXTRA_DIST += %D%/grpo.sh %D%/grpo_trl.py
bench-grpo: weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/grpo.sh
# Inter-stage fusion, simulated in its paper's setting.
bench_programs += %D%/fusion
%C%_fusion_SOURCES = %D%/fusion.c %D%/fusion.h %D%/check.h
bench_programs += %D%/papers_rlhfuse
%C%_papers_rlhfuse_SOURCES = %D%/papers_rlhfuse.c %D%/rows.h %D%/fusion.h %D%/check.h
%C%_papers_rlhfuse_LDADD = $(weft_libs)
%C%_fusion_LDADD = $(weft_libs)
bench-fusion: %D%/fusion
	%D%/fusion $(srcdir)/examples/clusters/rlhfuse_hopper.yaml
# What moves between calls, and is not hidden.
bench_programs += %D%/moves
%C%_moves_SOURCES = %D%/moves.c %D%/made.h %D%/check.h
%C%_moves_LDADD = $(weft_libs)
bench-moves: %D%/moves
	%D%/moves $(srcdir)/examples/clusters/rlhfuse_hopper.yaml
EXTRA_DIST += %D%/moves.sh
bench-moves-here: weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/moves.sh $(MOVES)
# Layouts of RLHFuse's models beside a searched plan.
EXTRA_DIST += %D%/searched.sh
bench-searched: weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/searched.sh $(SEARCHED)
# CPU time of generation's controller.
bench_programs += %D%/control
%C%_control_SOURCES = %D%/control.c %D%/hoppers.h %D%/made.h %D%/check.h
%C%_control_LDADD = $(weft_libs)
%C%_control_LDFLAGS = -Wl,--wrap=weft_g_generate_chunk \
	-Wl,--wrap=weft_g_generate_retire -Wl,--wrap=weft_gen_play_chunk \
	-Wl,--wrap=weft_rollout_run_all -Wl,--wrap=weft_tail_decide
bench-control: %D%/control
	%D%/control
# What papers measured beside what is predicted: all, in one table, or a paper's.
bench_programs += %D%/papers_table
%C%_papers_table_SOURCES = %D%/papers_table.c %D%/rows.h %D%/median.h
bench-papers: %D%/papers_table %D%/papers %D%/papers_real %D%/papers_search \
	%D%/papers_flexrlhf %D%/papers_rlhfuse
	@rm -f %D%/papers.rows
	PAPERS_ROWS=%D%/papers.rows $(MAKE) bench-papers-real \
	    bench-papers-flexrlhf bench-papers-rlhfuse
	%D%/papers_table %D%/papers.rows --svg %D%/papers.svg %D%/papers_curves.svg
CLEANFILES += %D%/papers.rows %D%/papers.svg %D%/papers_curves.svg
bench-papers-real: %D%/papers %D%/papers_real %D%/papers_search
	%D%/papers $(clusters)/real_h100.yaml --calibrate
	%D%/papers $(clusters)/real_h100.yaml
	%D%/papers_real $(clusters)/real_h100.yaml
	%D%/papers_search $(clusters) 30
bench-papers-flexrlhf: %D%/papers_flexrlhf
	%D%/papers_flexrlhf $(clusters)/flexrlhf_a100.yaml \
		$(clusters)/flexrlhf_mixed.yaml
bench-papers-rlhfuse: %D%/papers_rlhfuse
	%D%/papers_rlhfuse $(clusters)/rlhfuse_hopper.yaml
# What the search for plans takes, and what it estimates beside simulations of
# plans at random.
bench_programs += %D%/search
%C%_search_SOURCES = %D%/search.c %D%/median.h %D%/opened.h %D%/check.h
%C%_search_LDADD = $(weft_libs)
bench_programs += %D%/weigh
%C%_weigh_SOURCES = %D%/weigh.c %D%/opened.h %D%/check.h
%C%_weigh_LDADD = $(weft_libs)
clusters = $(srcdir)/examples/clusters
# What training is priced at, beside prices of runs recorded whole.
bench_programs += %D%/prices
%C%_prices_SOURCES = %D%/prices.c %D%/opened.h %D%/check.h
%C%_prices_LDADD = $(weft_libs)
bench-prices: %D%/prices
	%D%/prices $(clusters)/real_h100.yaml 1 1 $(clusters)/real_7b.yaml
	%D%/prices $(clusters)/real_h100.yaml 2 1 $(clusters)/real_7b.yaml
	%D%/prices $(clusters)/real_h100.yaml 4 1 $(clusters)/real_7b.yaml
bench-search: %D%/search %D%/weigh
	%D%/weigh $(clusters)/real_h100.yaml 1024 1 $(clusters)/real_70b.yaml \
	    layout=dp64tp8pp16 numerics.gradient_groups=64
	%D%/search $(clusters)/cpu_2cores.yaml 1 50 \
	    $(srcdir)/examples/quickstart/ppo.yaml
	%D%/search $(clusters)/real_h100.yaml 1 50 $(clusters)/real_7b.yaml
	%D%/search $(clusters)/real_h100.yaml 2 50 $(clusters)/real_7b.yaml
	for c in flexrlhf_a100 h200 rlhfuse_hopper; do for n in 1 2; do \
	    %D%/search $(clusters)/$$c.yaml $$n 50 $(clusters)/real_7b.yaml || \
	    exit 1; done; done
	%D%/search $(clusters)/flexrlhf_mixed.yaml 4 50 $(clusters)/real_7b.yaml
	%D%/search $(clusters)/real_h100.yaml 16 50 $(clusters)/real_70b.yaml
# What commands that plan take, beside their bars; PLANS: some of them.
EXTRA_DIST += %D%/plans.sh
bench-plans: weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/bench/plans.sh $(PLANS)
.PHONY: bench bench-again bench-auto bench-completed bench-control bench-fusion bench-generate bench-gpu bench-grpo \
	bench-layouts bench-moves bench-moves-here bench-papers bench-papers-flexrlhf bench-papers-real \
	bench-papers-rlhfuse bench-plans bench-prices bench-record bench-schedule bench-search bench-searched bench-simulate \
	bench-speeds \
	bench-tail bench-tail-emulated bench-trust bench-trust-emulated bench-trust-here
