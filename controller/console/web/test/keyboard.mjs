// The jobs of a day by the keyboard alone: a pointer that is pressed is a failure.
import assert from 'node:assert/strict'

export async function keyboard({ page, ask, say, open, accessible, pressed }) {
  const key = async (...keys) => { for (const k of keys) await page.keyboard.press(k) }
  const type = (text) => page.keyboard.type(text)
  const main = page.locator('main')
  const dialog = page.locator('dialog')
  const box = page.getByRole('combobox', { name: 'Filter' })
  const focused = () => page.evaluate(() => {
    const e = document.activeElement
    return [e?.tagName, e?.getAttribute('aria-label') ?? '', e?.textContent?.trim() ?? ''].join(' ')
  })
  // reach goes on by Tab until an element has the focus, as a person does, and proves that the focus is seen.
  async function reach(target, most = 120) {
    const wanted = await target.elementHandle()
    for (let i = 0; i < most; i++) {
      if (await wanted.evaluate((e) => e === document.activeElement)) {
        assert.notEqual(await wanted.evaluate((e) => getComputedStyle(e).outlineStyle), 'none', `the focus is not seen on ${await focused()}`)
        return
      }
      await key('Tab')
    }
    assert.fail(`${target} is not reached by Tab: the focus is on ${await focused()}`)
  }
  const before = pressed()

  // --- find a machine, open it, reboot it
  await open('')
  await key('Control+k')
  await type('web-3')
  await page.getByRole('option', { name: /^web-3\b/ }).first().waitFor()
  await key('Enter')
  await page.waitForURL(/\/machines\/web-3$/)
  await page.getByRole('heading', { name: 'web-3', level: 1 }).waitFor()
  const reboot = main.getByRole('button', { name: 'Reboot', exact: true }).first()
  await reboot.waitFor()
  await reach(reboot)
  await key('Enter')
  await dialog.getByText('ingot reboot web-3').first().waitFor()
  await reach(dialog.getByRole('button', { name: 'Reboot', exact: true }))
  await key('Enter')
  await dialog.waitFor({ state: 'detached' })
  await page.getByRole('heading', { name: 'Under way' }).waitFor()
  await page.getByRole('heading', { name: 'Under way' }).waitFor({ state: 'detached', timeout: 60_000 })
  const [last] = JSON.parse(await ask('ingot', 'ops', '-o', 'json', '--machine', 'web-3', '--type', 'REBOOT')).operations
  assert.equal(last.phase, 'SUCCEEDED', 'the reboot that the keyboard asked for')

  // --- filter a list: completion of keys and values
  await key('g', 'm')
  await page.waitForURL(/\/machines$/)
  await page.getByRole('table', { name: 'Machines' }).waitFor()
  await key('/')
  await type('effe')
  await page.getByRole('option', { name: /^effective_state/ }).waitFor()
  assert.deepEqual([await box.getAttribute('aria-expanded'), await box.getAttribute('aria-activedescendant')], ['true', null])
  await accessible(page, 'completion')
  await key('ArrowDown')
  assert.match(await page.locator('#' + (await box.getAttribute('aria-activedescendant'))).textContent(), /^effective_state/)
  await key('Enter')
  assert.equal(await box.inputValue(), 'effective_state=')
  await type('id')
  await key('ArrowDown', 'Enter')
  assert.equal(await box.inputValue(), 'effective_state=IDLE')
  await type(', rack=r3')
  await key('Escape')
  assert.equal(await box.getAttribute('aria-expanded'), 'false')
  await key('Enter')
  await page.waitForURL(/filter=effective_state%3DIDLE%2C\+rack%3Dr3/)
  await page.getByRole('link', { name: 'web-17', exact: true }).waitFor()
  assert.equal(await page.getByRole('link', { name: 'web-9', exact: true }).count(), 0)
  await key('Control+a')
  await type('phase in (READY, MAI')
  await key('ArrowDown', 'Enter')
  assert.equal(await box.inputValue(), 'phase in (READY, MAINTENANCE')
  // What a person has in hand is no key: the search has the machine that it is of.
  await key('Control+a')
  await type('52:54:00:09:12:01')
  await page.getByRole('option', { name: /^machine_id=rack-9-u12/ }).waitFor()
  await key('ArrowDown', 'Enter', 'Enter')
  await page.getByRole('link', { name: 'rack-9-u12', exact: true }).waitFor()
  await key('Control+a')
  await type('rack=r3')
  await key('Escape', 'Enter')
  await page.getByRole('link', { name: 'web-17', exact: true }).waitFor()

  // --- the bulk dialog: opened, a preview, closed, and the focus is back
  await page.keyboard.press('Tab')
  await page.locator('main').focus()
  await key('x', 'j', 'x')
  await page.getByText('2 selected').waitFor()
  const work = main.getByRole('button', { name: 'Work on them…' })
  await reach(work)
  await key('Enter')
  await dialog.getByText('The 2 machines are fixed now').waitFor()
  await reach(dialog.getByRole('button', { name: 'Preview', exact: true }))
  await key('Enter')
  await dialog.getByText('would be worked on').first().waitFor()
  await key('Escape')
  await dialog.waitFor({ state: 'detached' })
  assert.match(await focused(), /Work on them/, 'the focus is where it was before the dialog')

  // --- a row by keys, and a list of another kind
  await page.locator('main').focus()
  await key('j', 'k', 'Enter')
  await page.waitForURL(/\/machines\/web-/)
  await key('g', 'o')
  await page.getByRole('heading', { name: 'Operations', level: 1 }).waitFor()
  await page.getByRole('table', { name: 'Operations' }).waitFor()
  await key('/')
  await type('phase=SUC')
  await key('ArrowDown', 'Enter')
  assert.equal(await box.inputValue(), 'phase=SUCCEEDED')
  await key('Enter')
  await page.waitForURL(/filter=phase%3DSUCCEEDED/)
  assert.equal(pressed(), before, 'no pointer was pressed')
  say('the jobs of a day by keyboard')
}
