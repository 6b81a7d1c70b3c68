//! States come back from their blocks with the same bits, shared or as bytes.

mod support;

use samebit_arith::KvType;
use samebit_models::{StateBlock, StateError, Taps, TokenId};
use support::{cpu, model, run};

#[test]
fn a_state_is_its_blocks() {
    let model = model("llama");
    let decoder = model.state_decoder(KvType::Int8);
    for length in [0_u32, 1, 17, 256] {
        let tokens: Vec<TokenId> = (0..length).map(|at| TokenId(at * 7 % 50)).collect();
        let mut state = model.new_state(KvType::Int8);
        if length > 0 {
            run(&model, &cpu(2), &mut state, &tokens, Taps::default());
        }
        let blocks: Vec<StateBlock> = state.blocks().collect();
        assert!(decoder.assemble(&blocks).unwrap().encode() == state.encode());
        let read: Vec<StateBlock> = blocks.iter().map(|b| decoder.block(&b.encode()).unwrap()).collect();
        assert!(decoder.assemble(&read).unwrap().encode() == state.encode());
        let shared = blocks
            .iter()
            .flat_map(StateBlock::memory)
            .eq(state.blocks().flat_map(|b| b.memory().collect::<Vec<_>>()));
        assert!(shared, "blocks share their memory with the state");
        for block in &blocks {
            let bytes = block.encode();
            for cut in [0, 15, 19, 23, 31, bytes.len() - 1] {
                assert!(decoder.block(&bytes[..cut]).is_err(), "cut to {cut}");
            }
            assert!(model.state_decoder(KvType::F16).block(&bytes).is_err());
        }
        if length == 17 {
            let error = decoder.assemble(&[blocks[0].clone(), blocks[0].clone()]).unwrap_err();
            assert!(matches!(error, StateError::Damaged { .. }), "{error}");
        }
    }
}
