# SPDX-License-Identifier: Apache-2.0
# Examples use installed headers and the shared library alone;
# tests/examples.sh runs them.
example_libs = libweft.la -lm
example_programs = \
	%D%/01_score \
	%D%/02_generate \
	%D%/03_layer_graph \
	%D%/04_reward \
	%D%/05_ppo_loop
noinst_PROGRAMS += $(example_programs)
%C%_01_score_LDADD = $(example_libs)
%C%_02_generate_LDADD = $(example_libs)
%C%_03_layer_graph_LDADD = $(example_libs)
%C%_04_reward_LDADD = $(example_libs)
%C%_05_ppo_loop_LDADD = $(example_libs)
nobase_dist_doc_DATA += \
	$(example_programs:%=%.c) \
	%D%/04_reward.yaml \
	%D%/check.h \
	%D%/clusters/cpu_2cores.yaml \
	%D%/clusters/flexrlhf_a100.yaml \
	%D%/clusters/flexrlhf_mixed.yaml \
	%D%/clusters/h200.yaml \
	%D%/clusters/llama-70b/config.json \
	%D%/clusters/llama-7b/config.json \
	%D%/clusters/llama-7b-reward/config.json \
	%D%/clusters/real_70b.yaml \
	%D%/clusters/real_7b.yaml \
	%D%/clusters/real_h100.yaml \
	%D%/clusters/rlhfuse_hopper.yaml \
	%D%/gsm8k/README.md \
	%D%/gsm8k/ppo.yaml \
	%D%/gsm8k/sft.yaml \
	%D%/layouts/plan.json \
	%D%/layouts/ppo.yaml \
	%D%/quickstart/make-data.sh \
	%D%/quickstart/model/config.json \
	%D%/quickstart/model/generation_config.json \
	%D%/quickstart/model/model.safetensors \
	%D%/quickstart/model/tokenizer.json \
	%D%/quickstart/model/tokenizer_config.json \
	%D%/quickstart/dpo.yaml \
	%D%/quickstart/cispo.yaml \
	%D%/quickstart/dapo.yaml \
	%D%/quickstart/dr_grpo.yaml \
	%D%/quickstart/grpo.yaml \
	%D%/quickstart/gspo.yaml \
	%D%/quickstart/reinforce_pp.yaml \
	%D%/quickstart/reinforce_pp_baseline.yaml \
	%D%/quickstart/rloo.yaml \
	%D%/quickstart/remax.yaml \
	%D%/quickstart/kto.yaml \
	%D%/quickstart/pairs.jsonl \
	%D%/quickstart/ppo.yaml \
	%D%/quickstart/prompts.jsonl \
	%D%/quickstart/reward_model.yaml \
	%D%/quickstart/sft.jsonl \
	%D%/quickstart/sft.yaml \
	%D%/schedules/65b_33b.json \
	%D%/schedules/lengths.json \
	%D%/schedules/three_models.json \
	%D%/verify.yaml
