// An SMSC. It takes orders on stdin and says on stdout what it got, both as lines of JSON.
"use strict";

const { createRequire } = require("module");
const readline = require("readline");

const [modules, port, password] = process.argv.slice(2);
const smpp = createRequire(modules + "/")("smpp");

const orders = []; // what happens to the next submissions: {do: "refuse", status} | {do: "swallow"}
const swallowed = [];
const sessions = new Set();
let number = 0;

function say(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

function body(pdu) {
  const payload = pdu.message_payload || pdu.short_message;
  return payload.message === undefined ? payload : payload.message;
}

function answer(session, pdu) {
  number += 1;
  session.send(pdu.response({ message_id: "00A" + number }));
}

function submitted(session, pdu) {
  const { destination_addr, source_addr, source_addr_ton, dest_addr_ton, data_coding, registered_delivery } = pdu;
  say({
    got: "submit",
    to: destination_addr,
    to_ton: dest_addr_ton,
    from: source_addr,
    from_ton: source_addr_ton,
    text: body(pdu),
    as_payload: Boolean(pdu.message_payload),
    data_coding,
    registered_delivery,
    valid_until: pdu.validity_period instanceof Date ? pdu.validity_period.toISOString() : pdu.validity_period,
  });
  const order = orders.shift();
  if (!order) return answer(session, pdu);
  if (order.do === "refuse") return session.send(pdu.response({ command_status: order.status }));
  swallowed.push([session, pdu]);
}

const server = smpp.createServer((session) => {
  session.on("error", () => session.destroy());
  session.on("close", () => sessions.delete(session) && say({ got: "close" }));
  session.on("bind_transceiver", (pdu) => {
    say({ got: "bind", system_id: pdu.system_id });
    if (pdu.password !== password) {
      return session.send(pdu.response({ command_status: smpp.ESME_RINVPASWD }), () => session.close());
    }
    sessions.add(session);
    session.send(pdu.response({ system_id: "peer" }));
  });
  session.on("submit_sm", (pdu) => submitted(session, pdu));
  session.on("enquire_link", (pdu) => {
    say({ got: "enquire_link" });
    if (!mute) session.send(pdu.response());
  });
  session.on("unbind", (pdu) => {
    say({ got: "unbind" });
    session.send(pdu.response(), () => session.close());
  });
});

let mute = false;

const obey = {
  refuse: (order) => orders.push(order),
  swallow: (order) => orders.push(...Array(order.times).fill(order)),
  answer_swallowed: () => swallowed.splice(0).forEach(([session, pdu]) => answer(session, pdu)),
  refuse_swallowed: (order) =>
    swallowed.splice(0).forEach(([session, pdu]) => session.send(pdu.response({ command_status: order.status }))),
  deliver: ({ fields }) =>
    [...sessions][0].deliver_sm(fields, (pdu) => say({ got: "deliver_answer", status: pdu.command_status })),
  mute: () => (mute = true),
  drop: () => sessions.forEach((session) => session.destroy()),
  unbind: () => sessions.forEach((session) => session.unbind()),
};

server.listen(Number(port), "127.0.0.1", () => say({ got: "listening", port: server.address().port }));
readline
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const order = JSON.parse(line);
    obey[order.do](order);
    say({ done: order.do });
  })
  .on("close", () => process.exit(0));
