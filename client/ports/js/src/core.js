// hush without a network, a clock or a store: from a published task and a value to the bytes of one report.
// EACH DRAW SPENDS EPSILON. Use `Device`, which stores charge and report before it sends, and never draws twice.
export { HushError, below, bounded, decimalFraction, decimalText, hex, systemRandom, unhex, weightOfLie } from "./numbers.js";
export { sha256 } from "./sha256.js";
export { chooseOffer, costOf, currentRound, readTask } from "./task.js";
export { checkType, draw, encodeFrame, encodeJson, indicesOf, reportTopic, reported, reportedText } from "./answer.js";
export { KEEP_SECONDS, RECALL_BYTES, RECALL_EVERY, isRecalled, keptUntil, readRecall, recallDelay, recallTopic } from "./recall.js";
