// Opens the console in Chromium as a person would. It is started by lab/console, which does what it asks for.
import assert from 'node:assert/strict'
import { readFile, mkdir } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'
import { daily } from './daily.mjs'
import { errors } from './errors.mjs'
import { further } from './further.mjs'
import { keyboard } from './keyboard.mjs'

const base = process.env.CONSOLE_URL + '/console/'
const shots = process.env.CONSOLE_SHOTS
const all = Number(process.env.CONSOLE_MACHINES).toLocaleString('en')
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
async function ask(what, ...args) {
  console.log(JSON.stringify({ ask: what, args }))
  return JSON.parse((await answers.next()).value).answer
}
const say = (text) => console.log(`${((Date.now() - began) / 1000).toFixed(1)} s  ${text}`)
const began = Date.now()

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
  args: ['--no-sandbox', '--disable-dev-shm-usage'],
})
// The root certificate is the test's own. The tool's scripts are let past the page's policy in contexts for axe only.
const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 } })
context.setDefaultTimeout(90_000)
const page = await context.newPage()
const faults = []
function watch(p) {
  p.on('pageerror', (e) => faults.push(`${p.url()}: ${e.message}`))
  p.on('console', (m) => {
    if (m.type() !== 'error' || /Failed to load resource/.test(m.text())) return
    faults.push(`${p.url()}: ${m.text()}`)
  })
}
watch(page)

async function accessible(p, what) {
  const found = await p.evaluate(async () => {
    const r = await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
    return r.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html.slice(0, 120) + ' ' + (n.any[0]?.message ?? '')).slice(0, 3).join(' | ')}`)
  })
  for (const f of found) faults.push(`accessibility of ${what}: ${f}`)
}
// axe is put in by the browser itself, which the page's policy does not govern.
await context.addInitScript(axe)
// What a person does with the mouse: presses, and choices in lists.
let presses = 0
await context.exposeFunction('pressed', () => { presses++ })
await context.addInitScript(() => {
  addEventListener('pointerdown', () => window.pressed(), true)
  addEventListener('change', (e) => { if (e.target instanceof HTMLSelectElement) void window.pressed() }, true)
})
const jobs = []
async function job(name, work) {
  presses = 0
  await work()
  await page.evaluate(() => 0) // what was pressed last is counted
  jobs.push([presses, name])
  say(`job: ${name}: ${presses} presses`)
}

async function shot(name, p = page) {
  if (!shots) return
  await mkdir(shots, { recursive: true })
  await p.screenshot({ path: `${shots}/${name}.png` })
}

async function open(where) {
  await page.goto(base + where)
  await page.locator('main h1').first().waitFor()
}

// --- signing on
await page.goto(process.env.CONSOLE_URL + '/')
assert.equal(page.url(), base, 'the listener sends a browser to the console')
await page.getByRole('heading', { name: 'Sign on to Ingot' }).waitFor()
await accessible(page, 'sign-on')
await shot('sign-on')
await page.getByLabel('Or paste a bearer token').fill('not-a-token')
await page.getByRole('button', { name: 'Sign on' }).click()
await page.getByText('the token is not known').waitFor()
await page.getByLabel('Or paste a bearer token').fill(process.env.CONSOLE_TOKEN)
await page.getByRole('button', { name: 'Sign on' }).click()
await page.getByText('tester · admin').waitFor()
assert.equal(await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)), '{}{}', 'scripts see no token')
const cookie = (await context.cookies()).find((c) => c.name === '__Host-ingot')
assert.ok(cookie?.httpOnly && cookie.secure && cookie.sameSite === 'Strict')
say('signed on by token')

// --- the first screen
const number = (state) => page.locator(`[data-number=${state}]`)
const numbered = async (state) => Number((await number(state).textContent()).replaceAll(',', ''))
// shows waits until so many machines are shown to be in a state.
const shows = (state, n) => page.waitForFunction(([state, text]) => document.querySelector(`[data-number=${state}]`)?.textContent === text,
  [state, n.toLocaleString('en')], { polling: 50 })
await page.waitForFunction(() => document.querySelector('[data-number=BLOCKED]')?.textContent === '1')
assert.equal(await numbered('NEW'), 43, 'new machines')
await page.getByRole('heading', { name: 'Needs you' }).waitFor()
await page.locator('li', { hasText: 'web-5' }).first().waitFor()
await page.locator('canvas').waitFor()
await page.waitForTimeout(1200)
await accessible(page, 'fleet')
await shot('fleet')
await page.getByRole('button', { name: 'As a table' }).click()
await page.getByRole('cell', { name: 'r1', exact: true }).waitFor()
await accessible(page, 'fleet as a table')
await page.getByRole('button', { name: 'As squares' }).click()
say('first screen')

// --- a change is on the screen soon after its commit
const idle = await numbered('IDLE')
const moment = new Date(Math.floor(Date.now() / 1000) * 1000)
let maps = 0
page.on('request', (r) => { maps += r.url().includes('/machine-map') ? 1 : 0 })
await ask('ingot', 'enter-maintenance', 'web-2', '--no-wait')
const changed = Date.now()
await shows('IDLE', idle - 1)
say(`change on the screen after ${Date.now() - changed} ms`)
await page.waitForTimeout(2500)
assert.equal(maps, 0, 'a machine whose rack is a label stays in its place, and the whole map is not read again')

// --- the first screen as it was: what has changed since is not in it, and nothing can be done there
const local = (t) => new Date(t.getTime() - t.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
const at = page.getByLabel(/^At \(/)
const idleNow = idle - 1
await at.fill(local(moment))
await at.press('Enter')
await page.getByText('You see the past').waitFor()
await shows('IDLE', idle)
assert.match(await page.locator('h1').textContent(), /^The fleet at /)
await page.getByRole('heading', { name: 'Needed a person' }).waitFor()
await page.locator('li', { hasText: 'web-5' }).first().waitFor()
const verbs = await page.locator('main').getByRole('button').allTextContents()
assert.deepEqual(verbs.filter((v) => !/^(Play|Back to now|Copy|As a table)$/.test(v)), [], 'no verb is offered for the past')
assert.equal(await page.locator('main a').count(), 0, 'nothing of the past leads to what is now')
await accessible(page, 'fleet as it was')
await shot('past')
assert.equal(new URL(page.url()).searchParams.get('as_of'), moment.toISOString())
await page.reload()
await page.getByText('You see the past').waitFor()
await shows('IDLE', idle)
await page.getByLabel('Last').selectOption({ label: 'hour' })
await page.getByRole('button', { name: 'Play' }).click()
await page.getByText('You see the past').waitFor({ state: 'detached', timeout: 30_000 })
await shows('IDLE', idleNow)
await page.getByRole('slider').press('Home')
await page.getByRole('alert').filter({ hasText: 'the states of machines are kept since' }).waitFor()
await page.getByRole('button', { name: 'Back to now' }).click()
await page.getByText('You see the past').waitFor({ state: 'detached' })
assert.equal(await numbered('IDLE'), idleNow)
say('the fleet as it was')

// --- every page
for (const [where, heading] of [
  ['machines', 'Machines'], ['operations', 'Operations'], ['rollouts', 'Rollouts'], ['sites', 'Sites'], ['images', 'Images'],
  ['audit', 'Audit'], ['changes', 'Changes between two moments'], ['health', 'Health'], ['workflows', 'Workflows'], ['more', 'More'], ['access', 'Access'],
  ['budgets', 'Budgets and freeze'], ['webhooks', 'Webhooks'], ['bmcs', 'BMCs'], ['scripts', 'Scripts'],
  ['about', 'About'], ['nowhere', 'There is no such page'],
]) {
  await open(where)
  await page.getByRole('heading', { name: heading, exact: false, level: 1 }).waitFor()
  await page.waitForTimeout(700)
  await accessible(page, where)
}
say('every page')

// --- the list: filter of the controller, keys, selection, bulk work for real
await open('machines?filter=' + encodeURIComponent('rack=r2'))
await page.getByRole('link', { name: 'web-9', exact: true }).waitFor()
assert.equal(await page.getByRole('link', { name: 'web-1', exact: true }).count(), 0)
await page.keyboard.press('/')
await page.keyboard.type(',nonsense=1')
await page.keyboard.press('Enter')
await page.getByRole('alert').filter({ hasText: 'nonsense' }).waitFor()
assert.equal(await page.getByRole('link', { name: 'web-9', exact: true }).count(), 0, 'no row of the former filter is left')
// --- order, columns and saved views are words of the address
await open('machines?filter=' + encodeURIComponent('rack=r2'))
await page.getByRole('link', { name: 'web-9', exact: true }).waitFor()
await page.getByRole('button', { name: 'Machine', exact: true }).click()
await page.getByRole('button', { name: 'Machine', exact: true }).click()
await page.locator('th[aria-sort=descending]').waitFor()
const highest = 'web-16' // of the rack, by number
await page.waitForFunction((want) => document.querySelector('tbody a')?.textContent === want, highest)
await page.getByText('Columns', { exact: true }).click()
await page.getByRole('checkbox', { name: 'Labels', exact: true }).check()
await page.getByRole('checkbox', { name: 'Lifecycle', exact: true }).uncheck()
await page.getByRole('columnheader', { name: 'Labels' }).waitFor()
assert.equal(await page.getByRole('columnheader', { name: 'Lifecycle' }).count(), 0)
await accessible(page, 'columns')
await page.getByText('Columns', { exact: true }).click()
await page.getByRole('button', { name: 'Save as a view…' }).click()
await page.getByRole('dialog').getByLabel('Name', { exact: true }).fill('rack-2')
await page.getByRole('dialog').getByLabel('Title', { exact: true }).fill('The second rack')
await page.waitForTimeout(500) // the button turns from one that is off
await accessible(page, 'save a view')
await page.getByRole('dialog').getByRole('button', { name: 'Save as a view…' }).click()
await page.waitForURL(/view=rack-2/)
await page.getByRole('button', { name: 'Remove the view' }).waitFor()
await open('machines?view=rack-2')
await page.getByRole('columnheader', { name: 'Labels' }).waitFor()
await page.waitForFunction((want) => document.querySelector('tbody a')?.textContent === want, highest)
assert.equal(await page.getByRole('combobox', { name: 'View' }).inputValue(), 'rack-2')
await page.getByRole('button', { name: 'Remove the view' }).click()
await page.getByRole('dialog').getByRole('button', { name: 'Remove the view' }).click()
await page.getByRole('columnheader', { name: 'Lifecycle' }).waitFor()
assert.equal(new URL(page.url()).search, '')
await open('machines?view=rack-2')
await page.getByRole('alert').filter({ hasText: 'No view is called rack-2' }).waitFor()
say('a view saved, opened by its link, and removed')

await open('machines?filter=' + encodeURIComponent('effective_state=IDLE, rack=r3'))
await page.getByRole('link', { name: 'web-17', exact: true }).waitFor()
await page.locator('main').focus()
for (const key of ['x', 'j', 'x', 'j', 'x']) await page.keyboard.press(key)
await page.getByText('3 selected').waitFor()
await shot('machines')
await page.getByRole('button', { name: 'Work on them…' }).click()
await page.getByLabel('What').selectOption('reboot')
await page.getByRole('button', { name: 'Preview', exact: true }).click()
await page.getByText('3 machines would be worked on').waitFor()
await accessible(page, 'bulk work')
await shot('bulk')
await page.getByRole('button', { name: 'Begin on 3 machines' }).click()
await page.waitForURL(/\/rollouts\/ro-/)
await page.getByText('To follow it').waitFor()
await accessible(page, 'rollout')
await page.getByText('Succeeded', { exact: false }).first().waitFor({ timeout: 60_000 })
await page.waitForFunction(() => document.querySelectorAll('td .phase').length === 3 && [...document.querySelectorAll('td .phase')].every((e) => e.textContent?.includes('Succeeded')), undefined, { timeout: 60_000 })
say('three machines rebooted by a rollout')

// --- a rollout whose machines were not all done is amber, not green
await ask('ingot', 'enter-maintenance', 'spare-4')
await ask('ingot', 'enter-maintenance', 'spare-5')
await ask('ingot', 'reboot', 'spare-4', 'spare-5', '--yes', '--no-wait')
await open('rollouts')
await page.locator('tbody tr').first().getByRole('link').click()
await page.getByText('To follow it').waitFor()
for (const id of ['spare-4', 'spare-5']) {
  const row = page.locator('tr', { hasText: id })
  await row.locator('a[href*="/operations/"]').waitFor()
  const operation = (await row.locator('a[href*="/operations/"]').getAttribute('href')).split('/').pop()
  await ask('ingot', 'cancel', operation)
}
const ending = page.locator('dd .phase', { hasText: 'Completed with failures' })
await ending.waitFor({ timeout: 60_000 })
const colours = await ending.evaluate((e) => {
  const probe = e.ownerDocument.body.appendChild(e.ownerDocument.createElement('span'))
  const of = (name) => ((probe.style.color = `var(--${name})`), getComputedStyle(probe).color)
  const out = { its: getComputedStyle(e).color, amber: of('ATTENTION'), green: of('IDLE') }
  probe.remove()
  return out
})
assert.equal(colours.its, colours.amber)
assert.notEqual(colours.its, colours.green)
await accessible(page, 'a rollout with failures')
say('a rollout with failures is amber')

// --- a command of unknown outcome: both verdicts, what is known beside them, and a reason that must be written
await ask('ingot', 'reboot', 'web-7', '--step-timeout', '5s', '--no-wait')
await open('machines/web-7')
await page.getByRole('button', { name: 'Settle the outcome…' }).first().click({ timeout: 90_000 })
const verdict = page.getByRole('dialog')
await verdict.getByLabel('What is known').getByText('cmd-', { exact: false }).first().waitFor()
await verdict.getByText('Executor heard last').waitFor()
assert.deepEqual(await verdict.getByLabel('What you found').locator('option').evaluateAll((all) => all.map((o) => o.value)), ['', 'happened', 'did-not-happen'])
assert.equal(await verdict.getByLabel('What you found').inputValue(), '', 'no verdict is proposed')
const settle = verdict.locator('form button').last()
assert.ok(await settle.isDisabled())
await verdict.getByLabel('What you found').selectOption('did-not-happen')
assert.ok(await settle.isDisabled(), 'a verdict without a reason')
await verdict.getByLabel('How you know').fill('it never went down: uptime 40 days')
await page.waitForTimeout(500)
await accessible(page, 'a verdict')
await shot('settle')
await settle.click()
await verdict.waitFor({ state: 'detached' })
assert.equal(JSON.parse(await ask('ingot', 'machine', 'get', 'web-7', '-o', 'json')).status.unresolved_command_id ?? '', '')
say('an unknown outcome was settled')

// --- one zone a page, which the header names
await open('operations')
await page.locator('tbody time').first().waitFor()
const stamped = await page.locator('tbody time').first().getAttribute('datetime')
const toggle = page.getByRole('button', { name: /^Times in/ })
await toggle.click()
assert.match(await toggle.textContent(), /UTC/)
assert.ok((await page.locator('tbody time').first().textContent()).endsWith(new Date(stamped).toISOString().slice(11, 19)), 'times are in UTC')
await toggle.click()
say('one zone')

// --- one machine: a verb for real, a refused one with its reason
await open('machines/web-1')
await page.getByRole('button', { name: 'Reimage' }).first().click()
await page.getByText('Refused: the machine is in phase READY; enter maintenance first.').waitFor()
await accessible(page, 'verb')
await page.keyboard.press('Escape')
await page.getByRole('button', { name: 'Reboot' }).first().click()
await page.locator('dialog').getByText('ingot reboot web-1').first().waitFor()
await page.locator('dialog').getByRole('button', { name: 'Reboot', exact: true }).click()
await page.getByRole('heading', { name: 'Under way' }).waitFor()
await page.locator('ol li').first().waitFor()
await shot('machine')
await accessible(page, 'machine at work')
await page.getByRole('heading', { name: 'Under way' }).waitFor({ state: 'detached', timeout: 60_000 })
const operations = JSON.parse(await ask('ingot', 'ops', '-o', 'json', '--machine', 'web-1', '--type', 'REBOOT')).operations
assert.equal(operations.length, 1)
assert.equal(operations[0].phase, 'SUCCEEDED', 'the reboot that the page asked for')
await open('operations/' + operations[0].operation_id)
await page.getByRole('heading', { name: 'Steps' }).waitFor()
await page.waitForTimeout(800)
await accessible(page, 'operation')
await open('machines/no-such-machine')
await page.getByRole('alert').filter({ hasText: 'no-such-machine' }).waitFor()
say('a machine was rebooted by a button')

await further({ page, browser, base, ask, say, open, accessible, shot, axe, watch })
await daily({ page, ask, say, open, accessible, shot, job })
const counts = jobs.map(([n]) => n).sort((a, b) => a - b)
const median = counts[Math.floor(counts.length / 2)]
say(`${jobs.length} jobs, median ${median} presses, most ${counts.at(-1)}`)
assert.ok(median <= 4, `the median of presses is ${median}`)
await keyboard({ page, ask, say, open, accessible, pressed: () => presses })
await errors({ page, base, ask, say, shot })

// --- a freeze is a red banner with who and why
await ask('ingot', 'server', 'freeze', '--comment', 'cooling in hall 2 is down')
await open('')
await page.getByText('Frozen since').waitFor()
await page.getByText(/tester.*cooling in hall 2 is down/).waitFor()
await accessible(page, 'frozen fleet')
await ask('ingot', 'server', 'thaw')
await page.getByText('Frozen since').waitFor({ state: 'detached' })
say('freeze')

// --- a controller that stands still, and one that dies
const green = () =>
  page.evaluate(() => {
    const probe = document.createElement('span')
    document.body.append(probe)
    const out = ['IDLE', 'BUSY'].map((s) => {
      probe.style.color = `var(--${s})`
      return getComputedStyle(probe).color
    })
    probe.style.color = 'var(--soft)'
    const soft = getComputedStyle(probe).color
    probe.remove()
    return out.filter((c) => c !== soft)
  })
assert.notDeepEqual(await green(), [], 'a live page has colours')
for (const [end, again, limit] of [['kill', 'start', 5000], ['freeze', 'thaw', 14_000]]) {
  await ask(end)
  const t = Date.now()
  await page.getByText('Not connected since').waitFor({ timeout: limit })
  say(`${end}: said so after ${Date.now() - t} ms`)
  assert.deepEqual(await green(), [], 'nothing on an old page is green')
  assert.match(await page.locator('h1').textContent(), /as it was/)
  await accessible(page, 'page without a controller')
  if (end === 'kill') await shot('not-connected')
  await ask(again)
  const back = Date.now()
  await page.getByText('Not connected since').waitFor({ state: 'detached', timeout: 20_000 })
  await page.waitForFunction(() => !document.documentElement.hasAttribute('data-stale'), undefined, { timeout: 20_000 })
  say(`${again}: live again after ${Date.now() - back} ms`)
  assert.notDeepEqual(await green(), [])
}

// --- narrow and dark
const phone = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 320, height: 640 }, colorScheme: 'dark', reducedMotion: 'reduce' })
await phone.addInitScript(axe)
await phone.addInitScript(() => {
  const draw = CanvasRenderingContext2D.prototype.fillText
  window.labels = []
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.labels.push({ text, size: Number.parseFloat(/([\d.]+)px/.exec(this.font)[1]), squeezed: rest[2] !== undefined && this.measureText(text).width > rest[2] })
    return draw.call(this, text, ...rest)
  }
})
const small = await phone.newPage()
watch(small)
await small.goto(await ask('link'))
await small.getByRole('heading', { name: 'Needs you' }).waitFor()
assert.equal(new URL(small.url()).hash, '', 'the code is off the address')
for (const where of ['', 'machines', 'machines/web-1', 'operations', 'rollouts', 'sites', 'sites/berlin', 'audit', 'changes', 'health', 'workflows', 'more', 'access', 'budgets', 'webhooks', 'bmcs', 'scripts', 'about']) {
  await small.goto(base + where)
  await small.locator('main h1').first().waitFor()
  await small.waitForTimeout(700)
  const wide = await small.evaluate(() => document.documentElement.scrollWidth)
  assert.ok(wide <= 320, `${where || 'fleet'} is ${wide} wide on a screen of 320`)
  await accessible(small, `${where || 'fleet'}, narrow and dark`)
}
// A list of machines is cards, the state first, and nothing scrolls sideways.
await small.goto(base + 'machines?filter=' + encodeURIComponent('rack=r2'))
const first9 = small.locator('.cards li', { hasText: 'web-9' })
await first9.getByRole('link').waitFor()
assert.match((await first9.innerText()).trim(), /^(Idle|Busy|New|Maintenance|Attention|Blocked)\s+web-9\s/)
const sideways = () => small.evaluate(() => [...document.querySelectorAll('main *')].filter((e) => e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX) && !e.matches('input, pre')).map((e) => e.className))
assert.deepEqual(await sideways(), [], 'nothing scrolls sideways')
await first9.getByRole('checkbox').check()
await small.getByText('1 selected').waitFor()
await small.getByLabel('Order').selectOption('machine_id desc')
await small.waitForFunction(() => document.querySelector('.cards a')?.textContent === 'web-16')
await small.evaluate(() => scrollTo(0, 0)) // from the checkbox back to the chips, which the bar half covers
await accessible(small, 'machines as cards')
await shot('phone-machines', small)
// So are the rows of every other table, each fact beside the name of its column.
for (const where of ['operations', 'audit', 'health', 'access', 'machines/web-1']) {
  await small.goto(base + where)
  await small.locator('table.cards tbody td').first().waitFor()
  assert.deepEqual(await sideways(), [], `${where}: nothing scrolls sideways`)
  const bare = await small.evaluate(() => [...document.querySelectorAll('table.cards tbody td')].filter((c) => c.colSpan === 1 && !getComputedStyle(c, '::before').content.replaceAll('"', '')).length)
  assert.equal(bare, 0, `${where}: cells without the name of their column`)
}
await shot('phone-operations', small)
await small.goto(base)
await small.waitForFunction(() => window.labels.some((l) => l.text === 'default'))
const labels = await small.evaluate(() => window.labels)
assert.deepEqual(labels.filter((l) => l.size < 12 || l.squeezed), [], 'labels of the map are large enough, and not squeezed')
await small.waitForTimeout(1500)
await shot('phone-dark', small)
say('narrow and dark')

// --- a link signs on once; a session ends with its token
const used = await ask('link')
const other = await browser.newContext({ ignoreHTTPSErrors: true })
const first = await other.newPage()
await first.goto(used)
await first.getByText('tester · admin').waitFor()
const second = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage()
await second.goto(used)
await second.getByRole('alert').filter({ hasText: 'this link was used' }).waitFor()
const secret = (await ask('ingot', 'token', 'create', 'visitor', '--scope', 'read', '--bare')).trim()
const visitor = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage()
await visitor.goto(base)
await visitor.getByLabel('Or paste a bearer token').fill(secret)
await visitor.getByRole('button', { name: 'Sign on' }).click()
await visitor.getByText('visitor · read').waitFor()
await visitor.goto(base + 'audit')
await visitor.getByText('The audit log is for admins').waitFor()
await visitor.goto(base + 'machines/web-1')
await visitor.getByRole('button', { name: 'Reboot' }).first().click()
await visitor.locator('dialog').getByText('Refused: your token has scope read').waitFor()
await ask('ingot', 'token', 'revoke', await ask('token-id', 'visitor'))
await visitor.getByRole('heading', { name: 'Sign on to Ingot' }).waitFor({ timeout: 10_000 })
say('links and revocation')

// --- when many need somebody, the worst are shown, and where all are
await page.goto(base)
await ask('end-agents')
// Two machines were registered meanwhile, and three that were discovered were approved.
const more = (Number(process.env.CONSOLE_MACHINES) + 5).toLocaleString('en')
await page.getByRole('heading', { name: new RegExp(`^[\\d,]{2,} of ${more} machines need you`) }).waitFor({ timeout: 60_000 })
const needy = page.locator('section', { has: page.getByRole('heading', { name: 'Needs you' }) })
// Those of one reason are one entry.
const crowd = needy.locator('[data-crowd]').first()
await crowd.getByText(/\d machines/).first().waitFor()
assert.ok(await needy.locator(':scope > ul > li').count() <= 16, 'many machines are not as many entries')
await needy.getByText('since', { exact: false }).first().waitFor()
await page.waitForTimeout(500)
await accessible(page, 'fleet that needs somebody')
await shot('attention')
await needy.getByRole('link', { name: /^all/ }).click()
await page.getByRole('link', { name: 'node-0000', exact: true }).waitFor()
say('machines without their agents')

await page.goto(base)
await page.getByRole('button', { name: 'Sign out' }).click()
await page.getByRole('heading', { name: 'Sign on to Ingot' }).waitFor()
const replayed = await context.request.get(base + 'session', { headers: { 'X-Ingot-Console': '1', Cookie: `__Host-ingot=${cookie.value}` } })
assert.equal(replayed.status(), 401, 'a copy of the cookie is of no use after signing out')
say('signed out')

assert.deepEqual(faults, [], 'the browser reports no fault')
await browser.close()
process.exit(0)
